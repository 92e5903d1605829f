// The pages of docs are not in a node, where the tests with the tag run.
//go:build !realfs

package node

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestMkfsReference: the reference names the options that each file system may have, and those that it has anyway.
func TestMkfsReference(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/parameters.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, fsType := range fileSystems {
		line := fmt.Sprintf("- `%s`: `%s`; default `%s`", fsType,
			strings.Join(slices.Sorted(maps.Keys(mkfsAllowed[fsType])), " "), strings.Join(mkfsDefaults[fsType], " "))
		if !strings.Contains(string(page), line) {
			t.Errorf("the page lacks the line %s", line)
		}
	}
}

// TestMountOptionsReference: the reference names the mount options that are allowed, and no other.
func TestMountOptionsReference(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/parameters.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]map[string]*regexp.Regexp{"each file system": anyMountAllowed}
	for _, fsType := range fileSystems {
		own := maps.Clone(mountAllowed[fsType])
		maps.DeleteFunc(own, func(option string, _ *regexp.Regexp) bool { _, any := anyMountAllowed[option]; return any })
		lines["`"+fsType+"` too"] = own
	}
	for who, options := range lines {
		line := fmt.Sprintf("\n- %s: `%s`\n", who, strings.Join(slices.Sorted(maps.Keys(options)), " "))
		if !strings.Contains(string(page), line) {
			t.Errorf("the page lacks the line %s", line)
		}
	}
}
