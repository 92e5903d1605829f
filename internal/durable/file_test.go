package durable

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "record.json")
	for _, content := range []string{"a longer text", "short"} {
		if err := Replace(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != content {
			t.Errorf("the file has %q, %v; want %q", text, err, content)
		}
	}
	onlyEntry(t, dir)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has %v, %v; want that only its owner may read it", info.Mode(), err)
	}
}

// TestReplaceFails: a failure leaves no temporary file.
func TestReplaceFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "record.json")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Replace(path, []byte("text")); err == nil {
		t.Error("a folder was replaced by a file")
	}
	onlyEntry(t, dir)
	if err := Replace(filepath.Join(dir, "no", "record.json"), nil); err == nil {
		t.Error("a file was written to a folder that does not exist")
	}
}

func onlyEntry(t *testing.T, dir string) {
	t.Helper()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v; want one entry", entries, err)
	}
}
