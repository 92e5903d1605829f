package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestCheck: what the end of fsck.ext4 means.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for ending, want := range map[string]struct {
		kind lvm.Kind
		says string
	}{
		"exit 0":     {},
		"exit 1":     {}, // errors corrected
		"exit 8":     {}, // mount will tell
		"exit 4":     {lvm.KindConflict, "cannot be repaired automatically"},
		"exit 12":    {lvm.KindConflict, "cannot be repaired automatically"},
		"kill -9 $$": {lvm.KindInternal, "interrupted"},
	} {
		script := "#!/bin/sh\n" + ending + "\n"
		if err := os.WriteFile(filepath.Join(dir, "fsck.ext4"), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		err := newMachine().Fsck(t.Context(), "/dev/dm-3", "ext4")
		if (err == nil) != (want.says == "") || err != nil && (lvm.KindOf(err) != want.kind || !strings.Contains(err.Error(), want.says)) {
			t.Errorf("%s: %v; want kind %d and the words %q", ending, err, want.kind, want.says)
		}
	}
}
