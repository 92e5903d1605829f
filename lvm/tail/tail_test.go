package tail

import (
	"io"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestBuffer(t *testing.T) {
	for name, writes := range map[string][]string{
		"nothing":         {""},
		"little":          {" a\n b", "c\n"},
		"exactly all":     {strings.Repeat("a", Size)},
		"one large write": {strings.Repeat("a", 3*Size) + "b"},
		"many writes":     strings.SplitAfter(strings.Repeat("Clearing orphaned inode 12 (uid=0, gid=0, mode=0100644, size=4096)\n", 500), "\n"),
		"cut characters":  {strings.Repeat("é", Size), "x"},
	} {
		var b Buffer
		for _, text := range writes {
			if n, err := io.WriteString(&b, text); n != len(text) || err != nil {
				t.Fatalf("%s: %d, %v", name, n, err)
			}
		}
		all := strings.TrimSpace(strings.Join(writes, ""))
		got := b.String()
		if !strings.HasSuffix(all, got) || !utf8.ValidString(got) || len(got) < min(len(all), Size)-4 || len(got) > Size || cap(b.kept) > 2*Size {
			t.Errorf("%s: kept %d bytes in %d: %.40q", name, len(got), cap(b.kept), got)
		}
		var copied Buffer
		if n, err := io.Copy(&copied, strings.NewReader(strings.Join(writes, ""))); err != nil || n != int64(len(strings.Join(writes, ""))) || copied.String() != got {
			t.Errorf("%s: a copy of %d bytes keeps %.40q, not %.40q: %v", name, n, copied.String(), got, err)
		}
		if line := b.Line(); strings.ContainsAny(line, "\n") || len(line) > len(got) {
			t.Errorf("%s: the line %.40q", name, line)
		}
	}
}
