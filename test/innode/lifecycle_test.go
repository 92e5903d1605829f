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
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
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
	if err := unix.Statfs(path, &s); err != nil {
		t.Fatal(err)
	}
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
			if err := c.expand(t, origin, size+32*mebibyte); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := c.expandNode(t, origin, staging); err != nil {
					t.Fatal(err)
				}
			}
			holds(t, live, size+32*mebibyte)
			reads(t, filepath.Join(live, "text"), "after")
			reads(t, filepath.Join(beside, "text"), "before")
		})
	}
}

// The origin may go first: its snapshot stays, and a volume is made of it.
func TestOriginDeletedBeforeSnapshot(t *testing.T) {
	c := connect(t)
	origin := c.create(t, thinRequest("first-to-go", 64*mebibyte))
	staging, target := c.mountedOnce(t, origin, mountCapability("ext4"))
	write(t, filepath.Join(target, "text"), "kept")
	snapshot := c.snapshot(t, "stays", origin)
	c.unmount(t, origin, staging, target)
	if _, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: origin.GetVolumeId()}); err != nil {
		t.Fatal(err)
	}
	restored := c.create(t, copyRequest("of-an-orphan", 64*mebibyte, snapshot.GetSnapshotId(), ""))
	_, pod := c.mounted(t, restored, mountCapability("ext4"))
	reads(t, filepath.Join(pod, "text"), "kept")
}

// An expansion of an unused volume, without the step of the file system: the next stage resizes it.
func TestStageResizesFileSystemAfterExpansion(t *testing.T) {
	c := connect(t)
	for _, layout := range []string{"linear", "raid1"} {
		v := c.create(t, createRequest("lost-"+layout, 64*mebibyte, with("volumeGroup", "vg-r"), with("layout", layout), with("wipe", "none")))
		staging, target := c.mountedOnce(t, v, mountCapability("ext4"))
		write(t, filepath.Join(target, "text"), "kept")
		c.unmount(t, v, staging, target)
		if err := c.expand(t, v, 128*mebibyte); err != nil {
			t.Fatal(err)
		}
		_, target = c.mounted(t, v, mountCapability("ext4"))
		holds(t, target, 128*mebibyte)
		reads(t, filepath.Join(target, "text"), "kept")
	}
}
