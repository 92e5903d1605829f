package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPluginOutput: the output of kubectl's plugin in the pages is one that its own tests hold it to. That of the tutorial is the lab's:
// TestDocs compares it.
func TestPluginOutput(t *testing.T) {
	shown := 0
	for _, page := range files(t, ".md") {
		if page == filepath.Join(root, "docs", "tutorial.md") {
			continue
		}
		text, err := os.ReadFile(page)
		must(t, err)
		for _, block := range regexp.MustCompile("(?ms)^```console\n\\$ kubectl nodelvm ([a-z-]+)\n(.*?)^```").FindAllStringSubmatch(string(text), -1) {
			shown++
			golden := filepath.Join(root, "cmd/kubectl-nodelvm/testdata", block[1]+".txt")
			printed, err := os.ReadFile(golden)
			must(t, err)
			if !strings.Contains("\n\n"+string(printed)+"\n", "\n\n"+block[2]+"\n") {
				t.Errorf("%s shows an output of %s that is not in %s:\n%s", page, block[1], golden, block[2])
			}
		}
	}
	if shown < 2 {
		t.Errorf("only %d outputs were found", shown)
	}
}
