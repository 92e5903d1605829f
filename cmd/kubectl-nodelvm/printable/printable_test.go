package printable

import "testing"

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "Dünnwald 磁盘 💾 … ok": "Dünnwald 磁盘 💾 … ok", "a\x1b[2Jb": `a\x1b[2Jb`, "one\ntwo\ttab": `one\ntwo\ttab`,
		"a\xffb": `a\xffb`, "\u202eevil": `\u202eevil`, "\u009b31m": `\u009b31m`, "it's": "it's",
	} {
		if got := Text(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

func TestLines(t *testing.T) {
	for text, want := range map[string]string{
		"unknown command\n\x1b[2J\nnodes":                                      "unknown command\n  \\x1b[2J\n  nodes",
		"unknown command \"node\"\n\nDid you mean this?\n\tnodes\n\tvolumes\n": "unknown command \"node\"\n  \n  Did you mean this?\n    nodes\n    volumes",
	} {
		if got := Lines(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}
