package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/nodelvm/nodelvm/lvm/inventory"
	"github.com/nodelvm/nodelvm/statuspage"
)

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "Dünnwald 磁盘 💾 … ok": "Dünnwald 磁盘 💾 … ok", "a\x1b[2Jb": `a\x1b[2Jb`, "one\ntwo\ttab": `one\ntwo\ttab`,
		"a\xffb": `a\xffb`, "\u202eevil": `\u202eevil`, "\u009b31m": `\u009b31m`, "it's": "it's",
	} {
		if got := printable(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

func TestPrintableLines(t *testing.T) {
	if got := printableLines("unknown command\n\x1b[2J\nnodes"); got != "unknown command\n  \\x1b[2J\n  nodes" {
		t.Errorf("%q", got)
	}
}

// everythingOf prints all that the plugin says of a node whose driver answers this page.
func everythingOf(page statuspage.Page) (text string, lines int, err error) {
	f := sound()
	f.answers[0].page = page
	rows := volumeRowsOf(f.volumes, usersOf(podsOfShop()), f.answers)
	left := leftRows("node-1", f.volumes, usersOf(podsOfShop()), f.contents, f.answers[0])
	orphans := newOrphanClassifier(f.volumes, f.contents, claimsOfShop()).rows(f.answers)
	var reports []nodeReport
	for _, a := range f.answers {
		reports = append(reports, reportOf(a))
	}
	var out bytes.Buffer
	for _, t := range []*table{nodeTable(reports, true), volumeTable(rows, true), leftTable(left), orphanTable(orphans, true)} {
		err = errors.Join(err, t.write(&out, 0, false), t.write(&out, 80, false))
		lines += 2 * (1 + len(t.rows))
	}
	d := examine(f)
	err = errors.Join(err, d.write(&out, screen{}))
	lines += 3*len(d.Findings) + len(d.Unread) + 1
	return out.String(), lines, err
}

// FuzzPage: whatever a node's driver answers, the plugin neither fails nor prints what commands a terminal, and each thing that it
// tells has its own line.
func FuzzPage(f *testing.F) {
	for _, a := range troubled().answers {
		text, err := json.Marshal(a.page)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"node": "a\u001b[2J", "version": "\n", "unknown": ["\u001b]0;x\u0007"], "notReady": "1 found\nnothing is wrong",
		"findings": [{"trouble": "x\u001b[31m", "group": "\r", "text": "\u202e"}], "volumes": [{"id": "x", "used": -1, "size": 0, "state": "\b"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var page statuspage.Page
		if json.Unmarshal(text, &page) != nil {
			return
		}
		told, lines, err := everythingOf(page)
		if err != nil {
			t.Fatal(err)
		}
		if strings.ContainsFunc(told, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) || !utf8.ValidString(told) {
			t.Errorf("%q is printed of %s", told, text)
		}
		if n := strings.Count(told, "\n"); n != lines {
			t.Errorf("%d lines, want %d: %s", n, lines, told)
		}
	})
}

// FuzzBytes: sizes that a node tells are shown, whatever they are.
func FuzzBytes(f *testing.F) {
	f.Add(int64(1<<40), int64(1<<41))
	f.Add(int64(-1), int64(0))
	f.Fuzz(func(t *testing.T, used, size int64) {
		if text := share(inventory.Bytes(used), inventory.Bytes(size)) + inventory.Bytes(size).String(); text == "" || printable(text) != text {
			t.Errorf("%d of %d is %q", used, size, text)
		}
	})
}
