package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestEachLinterFindsItsFault: the command reports the marked lines of testdata, and no others.
func TestEachLinterFindsItsFault(t *testing.T) {
	tool := filepath.Join(t.TempDir(), "vet")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", tool, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), "go", "vet", "-vettool="+tool, "./...")
	cmd.Dir = "testdata"
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Error("go vet succeeded")
	}
	found := map[int]bool{}
	for _, at := range regexp.MustCompile(`(?m)faults\.go:(\d+):`).FindAllSubmatch(out, -1) {
		n, _ := strconv.Atoi(string(at[1]))
		found[n] = true
	}
	source, err := os.ReadFile("testdata/faults/faults.go")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(source), "\n") {
		if _, linter, marked := strings.Cut(line, "// want "); marked != found[i+1] {
			t.Errorf("line %d, marked %t (%s), is reported: %t", i+1, marked, linter, found[i+1])
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}
