//go:build e2e

package diagrams

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

// TestDiagrams: the library renders each diagram of the documentation, and refuses one that is not valid.
func TestDiagrams(t *testing.T) {
	library := os.Getenv("NODELVM_TEST_MERMAID")
	if library == "" {
		t.Fatal("NODELVM_TEST_MERMAID does not name mermaid.min.js: run this test with test/part.sh full-pages")
	}
	diagrams := []string{"flowchart LR\n  a -->\n"}
	names := []string{"an invalid diagram"}
	for _, path := range pages(t) {
		text, err := os.ReadFile(path)
		check.Must(t, err)
		for _, diagram := range Blocks(text) {
			diagrams = append(diagrams, diagram)
			names = append(names, path)
		}
	}
	if len(diagrams) < 3 {
		t.Errorf("the documentation holds %d diagrams", len(diagrams)-1)
	}
	results, err := Render(t.Context(), library, t.TempDir(), diagrams)
	check.Must(t, err)
	if !strings.Contains(results[0].Error, "Parse error") {
		t.Errorf("%s: %+v", names[0], results[0])
	}
	for i, result := range results[1:] {
		name, diagram := names[i+1], diagrams[i+1]
		if result.Error != "" {
			t.Errorf("%s: %s\n%s", name, result.Error, diagram)
		} else if result.Width < 100 || result.Texts < 2 {
			t.Errorf("%s: the picture is %v pixels wide and has %d labels\n%s", name, result.Width, result.Texts, diagram)
		}
	}
}

// pages are the Markdown files of the checkout.
func pages(t *testing.T) (all []string) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "../.." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || entry.Name() == "dist"):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".md"):
			all = append(all, path)
		}
		return nil
	})
	check.Must(t, err)
	return all
}
