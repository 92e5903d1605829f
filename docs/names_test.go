package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNamesInThePages: the tests, files and make targets that the pages name are there.
func TestNamesInThePages(t *testing.T) {
	tests := testNames(t)
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	must(t, err)
	named := 0
	for _, page := range files(t, ".md") {
		text := prose(t, page)
		check := func(pattern string, there func(name string) bool) {
			for _, found := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
				named++
				if !there(found[1]) {
					t.Errorf("%s: there is no %s", page, found[1])
				}
			}
		}
		check(`\b(Test[A-Z]\w*)`, func(name string) bool { return tests[name] || tests[name+"_RealLVM"] })
		check("`((?:api|cmd|controller|deploy|internal|kube|lvm|node|pending|report|test)/[^` *]+\\.[a-z]+)`", func(name string) bool {
			_, err := os.Stat(filepath.Join(root, name))
			return err == nil
		})
		check("(?:`|\n    )make ([a-z0-9-]+)", func(name string) bool { return strings.Contains(string(makefile), "\n"+name+":") })
	}
	if named < 50 {
		t.Errorf("only %d names were found", named)
	}
}

// testNames are the tests of the checkout.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, path := range files(t, "_test.go") {
		text, err := os.ReadFile(path)
		must(t, err)
		for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1) {
			names[string(found[1])] = true
		}
	}
	return names
}
