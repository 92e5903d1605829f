package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReleaseIsRefused: deploy/release.sh stops before it builds or removes anything, if a user could not verify the result.
func TestReleaseIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		tag      string            // of the commit; the version is v0.1.0
		files    map[string]string // that change the checkout, or are in the folder "out"
		settings []string
		says     string
	}{
		"no key":              {"v0.1.0", nil, nil, "set RELEASE_KEY"},
		"unusable key":        {"v0.1.0", nil, []string{"RELEASE_KEY=/none"}, "cannot sign with RELEASE_KEY=/none"},
		"key without checks":  {"v0.1.0", nil, []string{"RELEASE_KEY=/none", "RELEASE_CHECK=1"}, "unset RELEASE_KEY"},
		"no tag":              {"v0.0.9", nil, []string{"RELEASE_UNSIGNED=1"}, "does not have the tag v0.1.0"},
		"changed checkout":    {"v0.1.0", map[string]string{"versions.env": "GO_VERSION=1.0.0"}, []string{"RELEASE_UNSIGNED=1"}, "commit them first"},
		"folder of something": {"v0.1.0", map[string]string{"out/photo.jpg": "x"}, []string{"RELEASE_UNSIGNED=1"}, "out has files that are not of a release"},
	} {
		t.Run(name, func(t *testing.T) {
			checkout := checkoutOf(t, test.tag)
			for file, text := range test.files {
				writeFile(t, filepath.Join(checkout, file), text)
			}
			cmd := exec.CommandContext(t.Context(), "deploy/release.sh")
			cmd.Dir = checkout
			cmd.Env = append(os.Environ(), append([]string{"RELEASE_OUT=" + checkout + "/out", "RELEASE_KEY=", "RELEASE_UNSIGNED=", "RELEASE_CHECK="}, test.settings...)...)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), test.says) {
				t.Errorf("%v, want a refusal with %q:\n%s", err, test.says, out)
			}
			for file, text := range test.files {
				if got, err := os.ReadFile(filepath.Join(checkout, file)); err != nil || string(got) != text {
					t.Errorf("%s: %q, %v", file, got, err)
				}
			}
		})
	}
}

// checkoutOf returns a new repository with one commit, which has this tag and what release.sh reads first.
func checkoutOf(t *testing.T, tag string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"versions.env", "CHANGELOG.md", "deploy/release.sh", "deploy/chart/nodelvm/Chart.yaml"} {
		text, err := os.ReadFile(filepath.Join("../..", name))
		must(t, err)
		writeFile(t, filepath.Join(dir, name), string(text))
	}
	writeFile(t, filepath.Join(dir, ".gitignore"), "/out\n")
	for _, args := range [][]string{
		{"init", "--quiet"}, {"add", "."}, {"-c", "user.name=x", "-c", "user.email=x@y.example", "commit", "--quiet", "-m", "x"}, {"tag", tag},
	} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	return dir
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil { //nolint:gosec // one of them is a program
		t.Fatal(err)
	}
}
