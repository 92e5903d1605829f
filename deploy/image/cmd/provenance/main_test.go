package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

// TestProvenance: the statement names each file with its digest, the commit, and what else went in; and it is the same each time.
func TestProvenance(t *testing.T) {
	file := filepath.Join(t.TempDir(), "chart.tgz")
	if err := os.WriteFile(file, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	var dependencies dependencyList
	if err := dependencies.Set("debian-amd64=sha256:" + strings.Repeat("0", 64)); err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := run("v1", commit, dependencies, []string{file}, out); err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != second.String() {
		t.Error("two runs differ")
	}
	var s statement
	if err := json.Unmarshal(first.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	if len(s.Subject) != 1 || s.Subject[0].Name != "chart.tgz" || s.Subject[0].Digest["sha256"] != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" {
		t.Errorf("subject %+v", s.Subject)
	}
	from := s.Predicate.BuildDefinition.ResolvedDependencies
	if len(from) != 2 || from[0].Digest["gitCommit"] != commit || from[0].URI != "git+https://github.com/nodelvm/nodelvm@refs/tags/v1" || from[1].Name != "debian-amd64" {
		t.Errorf("dependencies %+v", from)
	}
}

func TestBadInput(t *testing.T) {
	for name, err := range map[string]error{
		"no version":   run("", commit, nil, []string{"x"}, &bytes.Buffer{}),
		"short commit": run("v1", "0123456", nil, []string{"x"}, &bytes.Buffer{}),
		"no file":      run("v1", commit, nil, nil, &bytes.Buffer{}),
		"missing file": run("v1", commit, nil, []string{filepath.Join(t.TempDir(), "none")}, &bytes.Buffer{}),
		"no digest":    new(dependencyList).Set("debian"),
		"short digest": new(dependencyList).Set("debian=sha256:00"),
	} {
		if err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
