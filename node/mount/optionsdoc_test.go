// The pages of docs are not in a node, where the tests with the tag run.
//go:build !realfs

package mount

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/node/filesystem"
)

// TestMountOptionsReference: the reference names the mount options that are allowed, and no other.
func TestMountOptionsReference(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/parameters.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]map[string]string{"each file system": commonOptions}
	for _, fsType := range filesystem.Types {
		own := maps.Clone(allowedOptions[fsType])
		maps.DeleteFunc(own, func(option, _ string) bool { _, any := commonOptions[option]; return any })
		lines["`"+fsType+"` too"] = own
	}
	for who, options := range lines {
		for option, values := range options {
			if _, err := regexp.Compile(values); err != nil {
				t.Errorf("the pattern of %s: %v", option, err)
			}
		}
		line := fmt.Sprintf("\n- %s: `%s`\n", who, strings.Join(slices.Sorted(maps.Keys(options)), " "))
		if !strings.Contains(string(page), line) {
			t.Errorf("the page lacks the line %s", line)
		}
	}
}
