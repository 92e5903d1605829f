package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"
)

// packed is a chart as Helm packs it, with a chart that it depends on.
func packed(t *testing.T, files ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	archive := tar.NewWriter(zip)
	for i := 0; i < len(files); i += 2 {
		if err := archive.WriteHeader(&tar.Header{Name: files[i], Size: int64(len(files[i+1])), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(files[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestChartMetadata: the chart's Chart.yaml counts, and not that of a chart within it.
func TestChartMetadata(t *testing.T) {
	got, err := chartMetadata(packed(t, "a/charts/b/Chart.yaml", "name: b", "a/Chart.yaml", "name: a\nversion: 0.1.0\n"))
	if want := `{"name":"a","version":"0.1.0"}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	if _, err := chartMetadata(packed(t, "a/values.yaml", "")); err == nil {
		t.Error("a chart without Chart.yaml was accepted")
	}
}

func TestBadArguments(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(file, []byte("no archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out.tar")
	for name, args := range map[string][]string{
		"unknown word": {"image", file}, "two charts": {"chart", file, file}, "no chart": {"chart", file}, "no image": {"index", file},
	} {
		if _, err := run(args[0], "v1", out, args[1:]); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("an archive was written")
	}
}
