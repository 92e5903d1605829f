package prose

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSourceFolders: each folder of the checkout with a Go package is read, except those without messages for users.
func TestSourceFolders(t *testing.T) {
	for _, pattern := range []string{"../../*/*.go", "../../*/*/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no file matches %s: %v", pattern, err)
		}
		for _, file := range files {
			folder := strings.Split(file, "/")[2]
			if !slices.Contains(append([]string{"api", "deploy", "docs", "test"}, SourceFolders...), folder) {
				t.Errorf("the linter of prose does not read %s", file)
			}
		}
	}
}
