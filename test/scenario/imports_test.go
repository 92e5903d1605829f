package scenario

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// uses names the packages of scenarios that another one may import.
var uses = map[string][]string{"demo": {"nodeloss"}, "neighbours": {"attack"}}

// TestImports holds the packages of scenarios apart: what several of them need is in this package, or in one that uses names.
func TestImports(t *testing.T) {
	files, err := filepath.Glob("*/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no package of scenarios: nothing was checked (%v)", err)
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			other, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), "github.com/nodelvm/nodelvm/test/scenario/")
			if ours && !slices.Contains(uses[filepath.Dir(path)], other) {
				t.Errorf("%s imports the scenarios of %s", path, other)
			}
		}
	}
}
