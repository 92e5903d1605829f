//go:build e2e

package prose

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

// TestRules: Vale, with the rules of docs/.vale, finds what they name in a page, in Go comments, and in the copies of messages and of
// YAML comments, and accepts what is only similar.
func TestRules(t *testing.T) {
	vale := os.Getenv("NODELVM_TEST_VALE")
	if vale == "" {
		t.Fatal("NODELVM_TEST_VALE does not name Vale: run this test with test/part.sh full-pages")
	}
	styles, err := filepath.Abs("../../docs/.vale/styles")
	check.Must(t, err)
	long := strings.Repeat("word ", 41) + "end"
	root := t.TempDir()
	for path, text := range map[string]string{
		".vale.ini":       "StylesPath = " + styles + "\n[formats]\ngo = md\n[*.{md,go}]\nBasedOnStyles = Nodelvm\n",
		"a.md":            "It heals anew.\n\n- nobody `somebody`\n\n" + long + ".\n\nThird-party code with in-flight requests displays roles. It has 40 words.\n",
		"kube/a.go":       "// Package kube mends\n// it.\npackage kube\n\nvar a = \"the group hangs now\"\n",
		"deploy/b/a.yaml": "key: value\n# somebody\n",
		"lvm/clean.go":    "// Package lvm plans.\npackage lvm\n",
		"deploy/b/c.tpl":  "{{/* " + long + " */}}\n",
	} {
		check.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755))
		check.Must(t, os.WriteFile(filepath.Join(root, path), []byte(text), 0o600))
	}
	for _, folder := range SourceFolders {
		check.Must(t, os.MkdirAll(filepath.Join(root, folder), 0o755))
	}
	check.Must(t, Collect(root))
	found, err := Check(t.Context(), root, vale, []string{"."})
	check.Must(t, err)
	var got []string
	for _, alert := range found {
		if alert.Severity == "error" {
			got = append(got, alert.String())
		}
	}
	want := strings.TrimSpace(`
a.md:1: error: Write 'recover' instead of 'heals'. (Nodelvm.Words)
a.md:1: error: Write 'again' instead of 'anew'. (Nodelvm.Words)
a.md:3: error: Write 'no process or no pod or no user' instead of 'nobody'. (Nodelvm.Words)
a.md:5: error: More than 40 words in a sentence: split it. (Nodelvm.SentenceLength)
deploy/b/a.yaml:2: error: Write 'the actor's name' instead of 'somebody'. (Nodelvm.Words)
deploy/b/c.tpl:1: error: More than 40 words in a sentence: split it. (Nodelvm.SentenceLength)
kube/a.go:1: error: Write 'fix or recover or repair' instead of 'mends'. (Nodelvm.Words)
kube/a.go:5: error: Write 'blocked' instead of 'group hangs'. (Nodelvm.Words)
`)
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}
