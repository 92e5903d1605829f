package mount

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestReadAtOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "device")
	if err := os.WriteFile(path, bytes.Repeat([]byte("ab"), 50), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := New().ReadAt(path, 1, 3); err != nil || string(data) != "bab" {
		t.Errorf("ReadAt = %q, %v", data, err)
	}
	if data, err := New().ReadAt(path, 98, 3); err == nil {
		t.Errorf("ReadAt beyond the end of a device = %q, want an error", data)
	}
}
