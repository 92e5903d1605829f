package logs

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/nodelvm/nodelvm/lvm"
)

func TestCut(t *testing.T) {
	long := strings.Repeat("x", 1000)
	kept := func(n int) string { return strings.Repeat("x", n) }
	for _, test := range []struct{ name, text, want string }{
		{"a short text", `volume "pvc-1": no room`, `volume "pvc-1": no room`},
		{"other alphabets", "Dünnwald 磁盘 💾", "Dünnwald 磁盘 💾"},
		{"a long word", "volume " + long + " is gone", "volume " + kept(240) + "... (1000 bytes) is gone"},
		{"a long name in quotes", fmt.Sprintf("volume %q is gone", "a b"+long), `volume "a b` + kept(236) + "... (1005 bytes) is gone"},
		{"a new line", "one\nlevel=error msg=\"two\"\r\x1b[2J\u2028\u202e\x00", `one\nlevel=error msg="two"\r\x1b[2J\u2028\u202e\x00`},
		{"no UTF-8", "a\xffb\ufffd", `a\xffb\ufffd`},
		{"a quote that never closes", "it's 3\" wide " + strings.Repeat("and so on ", 30), "it's 3\" wide " + strings.Repeat("and so on ", 30)},
	} {
		if got := Cut(test.text); got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, got, test.want)
		}
	}
	if got := Cut(strings.Repeat("all the words ", 1000)); len(got) != TextMost || !strings.HasSuffix(got, "... (14000 bytes)") {
		t.Errorf("a long text has %d bytes, and ends with %q", len(got), got[len(got)-30:])
	}
}

func FuzzCut(f *testing.F) {
	for _, seed := range []string{"", "a\nb", `"`, `"\`, "\xff", strings.Repeat(`"a `, 3000), strings.Repeat("\\", 5000), strings.Repeat("磁", 300)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := Cut(text)
		if len(got) > TextMost || !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q is cut to %q", text, got)
		}
	})
}

// TestLoggerCuts: so does every other line, whoever writes it.
func TestLoggerCuts(t *testing.T) {
	var out bytes.Buffer
	log, err := New(&out, "info", "console")
	if err != nil {
		t.Fatal(err)
	}
	huge := strings.Repeat("x\n", 100_000)
	log.With("with", huge).WithGroup("group").Info("message\nof two lines "+huge, "error", errors.New(huge), "list", []string{huge, huge},
		slog.Group("inner", "text", huge), "vg", lvm.VGName(huge), "volume", lvm.ID{VG: lvm.VGUUID(huge), LV: "lv"})
	if lines := strings.Count(out.String(), "\n"); lines != 1 || out.Len() > 8*TextMost {
		t.Errorf("%d lines, %d bytes: %.500s", lines, out.Len(), out.String())
	}
}
