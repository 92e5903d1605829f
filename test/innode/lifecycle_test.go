//go:build innode

package innode

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
)

// write puts a file with this text onto the disk, as a database does.
func write(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_SYNC, 0o600)
	must(t, err)
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	must(t, f.Close())
}

func reads(t *testing.T, path, want string) {
	t.Helper()
	if text, err := os.ReadFile(path); err != nil || string(text) != want {
		t.Errorf("%s reads %q, %v; want %q", path, text, err, want)
	}
}

// holds fails unless the mounted file system has at least so many bytes, less what its own tables take.
func holds(t *testing.T, path string, size int64) {
	t.Helper()
	var s unix.Statfs_t
	must(t, unix.Statfs(path, &s))
	if total := int64(s.Blocks) * s.Bsize; total < size*7/10 {
		t.Errorf("the file system at %s has %d bytes, the volume %d", path, total, size)
	}
}

// One lifecycle with all features of a thin class, for each file system: a snapshot of a mounted volume, clones of the same size
// and larger, and an expansion while it is in use. The test deletes the origin before its snapshot and its clones.
func TestThinVolumeLifecycle(t *testing.T) {
	for fsType, size := range map[string]int64{"ext4": 64 * mebibyte, "btrfs": 256 * mebibyte, "xfs": 320 * mebibyte} {
		t.Run(fsType, func(t *testing.T) {
			c := connect(t)
			capability := mountCapability(fsType)
			typed := func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{capability} }
			origin := c.create(t, thinRequest("life-"+fsType, size, typed))
			_, pod := c.mounted(t, origin, capability)
			write(t, filepath.Join(pod, "text"), "before")
			snapshot := c.snapshot(t, "life-"+fsType, origin)
			write(t, filepath.Join(pod, "text"), "after")

			restored := c.create(t, copyRequest("restored-"+fsType, size+64*mebibyte, snapshot.GetSnapshotId(), "", typed))
			_, beside := c.mounted(t, restored, capability)
			reads(t, filepath.Join(beside, "text"), "before")
			holds(t, beside, size+64*mebibyte)
			clone := c.create(t, copyRequest("clone-"+fsType, size, "", origin.GetVolumeId(), typed))
			_, second := c.mounted(t, clone, capability)
			reads(t, filepath.Join(second, "text"), "after")

			staging, live := c.mounted(t, origin, capability)
			must(t, c.expand(t, origin, size+32*mebibyte))
			for range 2 {
				must(t, c.expandNode(t, origin, staging))
			}
			holds(t, live, size+32*mebibyte)
			reads(t, filepath.Join(live, "text"), "after")
			reads(t, filepath.Join(beside, "text"), "before")
		})
	}
}
