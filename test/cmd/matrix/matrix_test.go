package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
	"github.com/nodelvm/nodelvm/test/hardwaretable"
)

// TestPageIsWhatTheResultsGive: docs/compatibility.md agrees with results.json and the versions of versions.env.
func TestPageIsWhatTheResultsGive(t *testing.T) {
	t.Chdir("../..")
	m, err := readMatrix(versionsFile)
	check.Must(t, err)
	all, err := readResults(resultsFile)
	check.Must(t, err)
	hardware, err := hardwaretable.Read(hardwaretable.File)
	check.Must(t, err)
	text, err := os.ReadFile(pageFile)
	check.Must(t, err)
	if string(text) != page(m, all, hardware) {
		t.Error(`docs/compatibility.md is not what the results give: run "make matrix", or "UPDATE=1 make test-hardware"`)
	}
	if !slices.IsSorted(m.kubernetes) || !strings.HasPrefix(m.kubernetes[0], "v1.32.") || len(m.nodes) < 3 {
		t.Errorf("the matrix is %q, want all versions from 1.32 on, oldest first, and three kinds of nodes", m)
	}
}

// TestPage: each cell has the numbers of passed and failed tests, or says that the part was not run.
func TestPage(t *testing.T) {
	var all results
	all.put(result{On: "v1.34.4", Part: "apiserver", Commit: "abc", Date: "2026-01-02", Passed: 7})
	all.put(result{On: "v1.36.3", Part: "scenarios", Commit: "abc", Date: "2026-01-02", Passed: 1, Failed: []string{"TestDemo"}})
	all.put(result{On: "trixie/bookworm", Part: "lvm", Commit: "abc", Date: "2026-01-02", Passed: 1})
	got := page(matrix{[]string{"v1.34.4", "v1.36.3"}, []string{"trixie/bookworm"}}, all, []hardwaretable.Row{{Test: "TestPull", Case: "a pulled disk"}})
	for _, want := range []string{
		"| 1.34.4 | 7 passed, 2026-01-02, abc | *not run* |\n",
		"| 1.36.3 | *not run* | **1 failed** (TestDemo), 1 passed, 2026-01-02, abc |\n",
		"| trixie | bookworm | 1 passed, 2026-01-02, abc |\n",
		"| a pulled disk |  |  |  |  | `TestPull` |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q:\n%s", want, got)
		}
	}
}

func TestResults(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"lvm-a.json": `{"Action":"run","Test":"TestA"}
{"Action":"pass","Test":"TestA/part"}
{"Action":"pass","Test":"TestA"}
{"Action":"fail","Test":"TestB"}
{"Action":"fail"}
`,
		"lvm-b.json": `{"Action":"pass","Test":"TestC"}` + "\n", "e2e-a.json": "of another part\n",
	} {
		check.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	r, err := readEvents(filepath.Join(dir, "lvm-*.json"))
	if err != nil || r.Passed != 2 || !slices.Equal(r.Failed, []string{"TestB"}) || r.isGood() {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := readEvents(filepath.Join(dir, "e2e-*.json")); err == nil {
		t.Error("a line that is no event was accepted")
	}
	path := filepath.Join(t.TempDir(), "results.json")
	all, err := readResults(path)
	if err != nil || len(all) != 0 {
		t.Fatalf("without a file: %v, %v", all, err)
	}
	all.put(result{On: "v1", Part: "a", Passed: 1})
	all.put(result{On: "v1", Part: "a", Passed: 2})
	check.Must(t, all.write(path))
	if again, err := readResults(path); err != nil || len(again) != 1 || again[0].Passed != 2 || !again[0].isGood() {
		t.Errorf("read back %+v, %v", again, err)
	}
}
