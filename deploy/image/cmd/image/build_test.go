package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("# A=0\nAB=1\nA=2 \nappVersion: \"v0.1.0\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for prefix, want := range map[string]string{"A=": "2", "AB=": "1", "appVersion: ": "v0.1.0"} {
		if got, err := readKey(path, prefix); err != nil || got != want {
			t.Errorf("readKey(%q) = %q, %v; want %q", prefix, got, err, want)
		}
	}
	if got, err := readKey(path, "C="); err == nil || !strings.Contains(err.Error(), `"C="`) {
		t.Errorf("a missing key gave %q, %v", got, err)
	}
}

// The real files must have the keys that the command reads.
func TestCheckoutHasTheKeys(t *testing.T) {
	root, err := findRoot("")
	if err != nil {
		t.Fatal(err)
	}
	if suite, err := readKey(filepath.Join(root, "versions.env"), "DEBIAN_IMAGE_SUITE="); err != nil || suite == "" {
		t.Errorf("suite %q, %v", suite, err)
	}
	version, err := readKey(filepath.Join(root, "deploy/chart/nodelvm/Chart.yaml"), "appVersion: ")
	if err != nil || !strings.HasPrefix(version, "v") {
		t.Errorf("version %q, %v", version, err)
	}
	spec := driverSpec(version, options{bin: "bin"})
	if spec.Ref != "ghcr.io/nodelvm/nodelvm:"+version {
		t.Errorf("reference %s", spec.Ref)
	}
	if spec.Files["/usr/local/bin/nodelvm"] != "bin/nodelvm" || spec.Files["/usr/local/bin/nodelvm-controller"] != "bin/nodelvm-controller" {
		t.Errorf("files %v", spec.Files)
	}
}

func TestFindRootOutside(t *testing.T) {
	t.Chdir(t.TempDir())
	if root, err := findRoot(""); err == nil {
		t.Errorf("found a checkout at %s", root)
	}
}

func TestCacheDirFollowsTheEnvironment(t *testing.T) {
	t.Setenv("NODELVM_CACHE", "/x")
	if dir, err := cacheDir(); err != nil || dir != "/x" {
		t.Errorf("%q, %v", dir, err)
	}
	t.Setenv("NODELVM_CACHE", "")
	t.Setenv("XDG_CACHE_HOME", "/y")
	if dir, err := cacheDir(); err != nil || dir != "/y/nodelvm" {
		t.Errorf("%q, %v", dir, err)
	}
}
