package mount

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

// TestMountPointBelowDanglingLink: a pods directory that is a link to what the container lacks is named in the error, with the cure.
func TestMountPointBelowDanglingLink(t *testing.T) {
	pods := filepath.Join(t.TempDir(), "pods")
	check.Must(t, os.Symlink("/no/such/pods", pods))
	made, err := Machine{}.CreateMountPoint(filepath.Join(pods, "uid/volumes/mount"), false)
	if lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(err.Error(), pods+" is a symbolic link to /no/such/pods") || len(made) != 0 {
		t.Errorf("created %q: %v", made, err)
	}
	check.Must(t, os.Remove(pods))
	if made, err := (Machine{}).CreateMountPoint(filepath.Join(pods, "uid"), false); err != nil || len(made) != 2 {
		t.Errorf("without the link, created %q: %v", made, err)
	}
}

func TestReadAtOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "device")
	check.Must(t, os.WriteFile(path, bytes.Repeat([]byte("ab"), 50), 0o600))
	if data, err := New().ReadAt(path, 1, 3); err != nil || string(data) != "bab" {
		t.Errorf("ReadAt = %q, %v", data, err)
	}
	if data, err := New().ReadAt(path, 98, 3); err == nil {
		t.Errorf("ReadAt beyond the end of a device = %q, want an error", data)
	}
}
