package hardwaretable

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

var must = check.Must

// TestEachRowIsOfATest: each row names a test of ./innode, and each test there that needs emulated hardware has a row.
func TestEachRowIsOfATest(t *testing.T) {
	rows, err := Read("../" + File)
	must(t, err)
	files, err := filepath.Glob("../innode/hardware*_test.go")
	must(t, err)
	var tests []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		for _, found := range regexp.MustCompile(`(?m)^func (TestHardware\w*)\(`).FindAllSubmatch(text, -1) {
			tests = append(tests, string(found[1]))
		}
	}
	if len(tests) == 0 {
		t.Fatal("../innode has no test on emulated hardware")
	}
	of := func(r Row) string { name, _, _ := strings.Cut(r.Test, "/"); return name }
	for _, r := range rows {
		if !slices.Contains(tests, of(r)) {
			t.Errorf("%s is no test", r.Test)
		}
	}
	for _, test := range tests {
		if !slices.ContainsFunc(rows, func(r Row) bool { return of(r) == test }) {
			t.Errorf(`%s has no row: run "UPDATE=1 make test-hardware"`, test)
		}
	}
}

func TestInEvents(t *testing.T) {
	rows, err := InEvents([]byte(`{"Action":"run","Test":"TestA"}
{"Action":"output","Test":"TestA","Output":"    x_test.go:9: hardware case: {\"Test\":\"TestA\",\"Case\":\"a\",\"Message\":\"on AEuqa6-hPMC-YIxG-AXHu-sfSS-dFy6-ladqxB (A)\"}\n"}
`))
	must(t, err)
	if want := []Row{{Test: "TestA", Case: "a", Message: "on UUID (A)"}}; !slices.Equal(rows, want) {
		t.Errorf("got %+v", rows)
	}
	for _, bad := range []string{"text\n", `{"Output":"hardware case: {"}` + "\n"} {
		if _, err := InEvents([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestDifferences(t *testing.T) {
	a, b, other := Row{Test: "A", Pod: "goes on"}, Row{Test: "B", Pod: "errors"}, Row{Test: "A", Pod: "errors"}
	for name, c := range map[string]struct {
		recorded, seen []Row
		whole          bool
		want           []string
	}{
		"equal":                      {[]Row{a, b}, []Row{b, a}, true, nil},
		"a part of the run":          {[]Row{a, b}, []Row{a}, false, nil},
		"a row is missing":           {[]Row{a, b}, []Row{a}, true, []string{"B showed nothing"}},
		"a row is new":               {[]Row{a}, []Row{a, b}, false, []string{"B shows"}},
		"a test shows another thing": {[]Row{a}, []Row{other}, false, []string{"A shows"}},
	} {
		got := Differences(c.recorded, c.seen, c.whole)
		if len(got) != len(c.want) || len(got) == 1 && !strings.HasPrefix(got[0], c.want[0]) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestUpdate(t *testing.T) {
	a, b, other := Row{Test: "A"}, Row{Test: "B"}, Row{Test: "A", Pod: "errors"}
	if got := Update([]Row{a, b}, []Row{other}, false); !slices.Equal(got, []Row{b, other}) {
		t.Errorf("a part of the run: %+v", got)
	}
	if got := Update([]Row{a, b}, []Row{other}, true); !slices.Equal(got, []Row{other}) {
		t.Errorf("a whole run: %+v", got)
	}
}

func TestTable(t *testing.T) {
	rows := []Row{{Test: "B", Case: "b", Message: "x | y"}, {Test: "A", Case: "a", Pod: "goes on", Capacity: "1 MiB", Condition: "None"}}
	want := head + "| a | goes on | 1 MiB | None |  | `A` |\n| b |  |  |  | x \\| y | `B` |\n"
	if got := Table(rows); got != want {
		t.Errorf("got\n%s", got)
	}
	page, err := Replace("text\n\n"+head+"| old |\n| older |\n\nmore\n", rows)
	must(t, err)
	if page != "text\n\n"+want+"\nmore\n" {
		t.Errorf("got\n%s", page)
	}
	if _, err := Replace("text\n", rows); err == nil {
		t.Error("a page without a table was accepted")
	}
}

func TestFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rows.json")
	if rows, err := Read(file); err != nil || rows != nil {
		t.Errorf("without a file: %v, %v", rows, err)
	}
	want := []Row{{Test: "A", Case: "a <b>", Message: "& c"}}
	must(t, Write(file, want))
	if rows, err := Read(file); err != nil || !slices.Equal(rows, want) {
		t.Errorf("got %+v, %v", rows, err)
	}
	must(t, os.WriteFile(file, []byte("text"), 0o600))
	if _, err := Read(file); err == nil {
		t.Error("a file that is no list was accepted")
	}
}
