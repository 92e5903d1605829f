// Package docs holds no code: its tests hold the documentation to the code and to itself.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

const root = ".."

// TestLinks: each link to a file of the checkout leads to one, and each anchor to a heading.
func TestLinks(t *testing.T) {
	links := 0
	for _, page := range files(t, ".md") {
		for _, found := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(prose(t, page), -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			links++
			path, anchor, _ := strings.Cut(found[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s leads nowhere", page, found[1])
			} else if anchor != "" && !headings(t, target)[anchor] {
				t.Errorf("%s: %s has no such heading", page, found[1])
			}
		}
	}
	if links < 20 {
		t.Errorf("only %d links were found", links)
	}
}

// TestEveryPageIsInTheIndex: docs/README.md leads to all pages.
func TestEveryPageIsInTheIndex(t *testing.T) {
	index := prose(t, "README.md")
	for _, page := range files(t, ".md") {
		name, err := filepath.Rel(".", page)
		must(t, err)
		if !strings.HasPrefix(name, "..") && name != "README.md" && !strings.Contains(index, "]("+filepath.ToSlash(name)+")") {
			t.Errorf("docs/README.md does not lead to %s", name)
		}
	}
}

// files are the files of the checkout whose names end so, but those of test data.
func files(t *testing.T, end string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || entry.Name() == "dist"):
			return filepath.SkipDir
		case strings.HasSuffix(path, end):
			all = append(all, path)
		}
		return nil
	})
	must(t, err)
	return all
}

// prose is a page without its blocks of code.
func prose(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	must(t, err)
	return regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(string(text), "")
}

// headings are the anchors of a page, as GitHub makes them.
func headings(t *testing.T, page string) map[string]bool {
	t.Helper()
	anchors := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^#+ +(.+)$`).FindAllStringSubmatch(prose(t, page), -1) {
		words := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(found[1]), "")
		anchors[strings.ReplaceAll(words, " ", "-")] = true
	}
	return anchors
}

var must = check.Must
