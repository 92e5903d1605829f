package image

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMissingLibraries(t *testing.T) {
	program, err := os.ReadFile("/bin/sh") // a program that is linked to something, on any Debian
	must(t, err)
	files := map[string]string{"./bin/sh": string(program), "./etc/motd": "hi", "./etc/empty": ""}
	bare := filepath.Join(t.TempDir(), "bare.tar")
	writeTar(t, bare, files)
	missing, err := MissingLibraries(bare)
	must(t, err)
	if !slices.ContainsFunc(missing, func(m string) bool { return strings.HasPrefix(m, "bin/sh needs libc.so") }) {
		t.Fatalf("missing %q, want the C library", missing)
	}
	for _, m := range missing {
		_, library, _ := strings.Cut(m, " needs ")
		files["./usr/lib/x86_64-linux-gnu/"+library] = ""
	}
	whole := filepath.Join(t.TempDir(), "whole.tar")
	writeTar(t, whole, files)
	if missing, err = MissingLibraries(whole); err != nil || len(missing) > 0 {
		t.Errorf("missing %q, %v, want nothing", missing, err)
	}
}

func TestMissingLibrariesOfABrokenArchive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "base.tar.gz")
	must(t, os.WriteFile(path, []byte("not compressed"), 0o600))
	if missing, err := MissingLibraries(path); err == nil {
		t.Errorf("missing %q and no error", missing)
	}
}
