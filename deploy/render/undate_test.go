package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/chart/loader"
)

// TestPackedChartHasNoTime: a chart that is packed later has the same bytes, and Helm still reads it.
func TestPackedChartHasNoTime(t *testing.T) {
	dir := t.TempDir()
	must(t, pack(deployDir, dir))
	paths, err := filepath.Glob(filepath.Join(dir, "nodelvm-*.tgz"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("packed %v, %v", paths, err)
	}
	text, err := os.ReadFile(paths[0])
	must(t, err)
	zip, err := gzip.NewReader(bytes.NewReader(text))
	must(t, err)
	archive, files := tar.NewReader(zip), 0
	for header, err := archive.Next(); err == nil; header, err = archive.Next() {
		files++
		if !header.ModTime.Equal(time.Unix(0, 0)) {
			t.Errorf("%s is dated %s", header.Name, header.ModTime)
		}
	}
	if !zip.ModTime.IsZero() || files < 10 {
		t.Errorf("dated %s, %d files", zip.ModTime, files)
	}
	if chart, err := loader.Load(paths[0]); err != nil || chart.Name() != "nodelvm" {
		t.Errorf("Helm reads %v, %v", chart, err)
	}
}
