package image

import (
	"compress/gzip"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// standIn puts an executable named mmdebstrap first in PATH: what is tested here
// is what happens around the real one, which needs a mirror and a minute.
func standIn(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "mmdebstrap"), []byte("#!/bin/sh\n"+script), 0o700))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestDebianStoresWhatMmdebstrapWrites(t *testing.T) {
	standIn(t, `echo "$SOURCE_DATE_EPOCH $@"`)
	t.Setenv("SOURCE_DATE_EPOCH", "")
	out := filepath.Join(t.TempDir(), "images", "base.tar")
	must(t, Debian(context.Background(), "trixie", []string{"lvm2", "kmod"}, out, Options{Arch: "arm64"}))
	content, err := os.ReadFile(out)
	must(t, err)
	got := string(content)
	for _, want := range []string{"0 --variant=essential", "--include=lvm2,kmod", "--architectures=arm64", "rm -f", "trixie -\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("command line %q lacks %q", got, want)
		}
	}
	if strings.Contains(got, "--extract-hook") {
		t.Errorf("command line %q has hooks of the extract variant", got)
	}
}

func TestDebianCompressesByName(t *testing.T) {
	standIn(t, `echo "$@"`)
	out := filepath.Join(t.TempDir(), "base.tar.gz")
	err := Debian(context.Background(), "trixie", []string{"lvm2"}, out, Options{Variant: VariantExtract, Exclude: []string{"/usr/sbin/x*"}})
	must(t, err)
	file, err := os.Open(out)
	must(t, err)
	defer func() { _ = file.Close() }()
	zip, err := gzip.NewReader(file)
	must(t, err)
	content, err := io.ReadAll(zip)
	must(t, err)
	for _, want := range []string{"--variant=extract", "--dpkgopt=path-exclude=/usr/sbin/x*", "--extract-hook=rm -f", "ldconfig -r"} {
		if !strings.Contains(string(content), want) {
			t.Errorf("command line %q lacks %q", content, want)
		}
	}
}

func TestFailedDebianSaysWhyAndLeavesNothing(t *testing.T) {
	standIn(t, `echo half; yes noise | head -n 5000 >&2; echo "E: no such package: lvm3" >&2; exit 25`)
	dir := t.TempDir()
	var log strings.Builder
	err := Debian(context.Background(), "trixie", []string{"lvm3"}, filepath.Join(dir, "base.tar"), Options{Log: &log})
	if err == nil || !strings.Contains(err.Error(), "no such package: lvm3") || !strings.Contains(err.Error(), "exit status 25") {
		t.Fatalf("error %v", err)
	}
	if len(err.Error()) > 2*tailBytes {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
	if !strings.Contains(log.String(), "noise") {
		t.Error("the log got nothing")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestDebianNamesTheMissingPackage(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := Debian(context.Background(), "trixie", []string{"lvm2"}, filepath.Join(t.TempDir(), "base.tar"), Options{})
	if err == nil || !strings.Contains(err.Error(), "apt-get install mmdebstrap") {
		t.Errorf("error %v, want one that names the package", err)
	}
}

func TestLicencesAreKept(t *testing.T) {
	docs := slices.Index(unread, "path-exclude=/usr/share/doc/*")
	licences := slices.Index(unread, "path-include=/usr/share/doc/*/copyright")
	if docs < 0 || licences < docs { // dpkg: the last rule that matches wins
		t.Errorf("rules %v do not keep copyright files", unread)
	}
}
