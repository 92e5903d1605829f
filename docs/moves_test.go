package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestOutcomesOfMoves: each row of the table of what becomes of a move names tests, and these exist with their subtests.
func TestOutcomesOfMoves(t *testing.T) {
	const page = "howto/move.md"
	_, text, found := strings.Cut(prose(t, page), "\n## What becomes of a move\n")
	if !found {
		t.Fatalf("%s has no section on what becomes of a move", page)
	}
	var code []string
	for _, pattern := range []string{"kube/move/*_test.go", "move/*_test.go", "test/e2e/*_test.go"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		must(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			must(t, err)
			code = append(code, string(text))
		}
	}
	rows := regexp.MustCompile(`(?m)^\| .*`).FindAllString(text, -1)
	for _, row := range rows[min(1, len(rows)):] {
		named := regexp.MustCompile("`(Test\\w*)(?:/(\\w+))?`").FindAllStringSubmatch(row, -1)
		if len(named) == 0 {
			t.Errorf("%s: no test is named in the row %q", page, row)
		}
		for _, name := range named {
			if !isTest(code, name[1], strings.ReplaceAll(name[2], "_", " ")) {
				t.Errorf("%s: there is no test %s", page, name[0])
			}
		}
	}
	if len(rows) < 13 {
		t.Errorf("only %d rows were found", len(rows))
	}
}

// isTest reports whether a file of the code has a test, and the name of its subtest.
func isTest(code []string, test, subtest string) bool {
	for _, text := range code {
		_, body, found := strings.Cut(text, "\nfunc "+test+"(t *testing.T)")
		body, _, _ = strings.Cut(body, "\n}\n")
		if found && (subtest == "" || strings.Contains(body, `"`+subtest+`"`)) {
			return true
		}
	}
	return false
}
