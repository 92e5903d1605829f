//go:build innode

package innode

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// Only device-mapper freezes the file system for a snapshot: what was written and never synced is in it, and
// its journal has nothing to replay, as after an unmount.
func TestSnapshotOfMountedFileSystemIsClean(t *testing.T) {
	c := connect(t)
	origin := c.create(t, thinRequest("unfrozen", 64*mebibyte))
	_, pod := c.mounted(t, origin, mountCapability("ext4"))
	text := strings.Repeat("never synced\n", 10000)
	if err := os.WriteFile(filepath.Join(pod, "text"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	device := output(t, "findmnt", "--noheadings", "--output", "SOURCE", pod)
	if head := output(t, "dumpe2fs", "-h", device); !strings.Contains(head, "needs_recovery") {
		t.Fatalf("the mounted file system has nothing to replay, so this test shows nothing:\n%s", head)
	}
	snapshot := c.snapshot(t, "unfrozen", origin)

	raw := c.create(t, copyRequest("unfrozen-raw", 64*mebibyte, snapshot.GetSnapshotId(), "", func(r *csi.CreateVolumeRequest) {
		r.VolumeCapabilities = []*csi.VolumeCapability{blockCapability()}
	}))
	_, disk := c.mounted(t, raw, blockCapability())
	if head := output(t, "dumpe2fs", "-h", disk); strings.Contains(head, "needs_recovery") {
		t.Errorf("the copy's journal must be replayed:\n%s", head)
	}
	restored := c.create(t, copyRequest("unfrozen-copy", 64*mebibyte, snapshot.GetSnapshotId(), ""))
	_, beside := c.mounted(t, restored, mountCapability("ext4"))
	reads(t, filepath.Join(beside, "text"), text)
}

// btrfs does not freeze on older kernels: the driver syncs it before a snapshot and before a clone.
func TestCopiesOfMountedBtrfsHoldUnsyncedData(t *testing.T) {
	const size = 256 * mebibyte
	c, capability := connect(t), mountCapability("btrfs")
	typed := func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{capability} }
	origin := c.create(t, thinRequest("unsynced", size, typed))
	_, pod := c.mounted(t, origin, capability)
	text := strings.Repeat("never synced\n", 10000)
	for name, request := range map[string]func(file string) *csi.CreateVolumeRequest{
		"restored": func(file string) *csi.CreateVolumeRequest {
			return copyRequest("unsynced-"+file, size, c.snapshot(t, "unsynced", origin).GetSnapshotId(), "", typed)
		},
		"cloned": func(file string) *csi.CreateVolumeRequest {
			return copyRequest("unsynced-"+file, size, "", origin.GetVolumeId(), typed)
		},
	} {
		if err := os.WriteFile(filepath.Join(pod, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, beside := c.mounted(t, c.create(t, request(name)), capability)
		reads(t, filepath.Join(beside, name), text)
	}
}

// LVM would fail half-way on a file system that another process froze: the driver does not start it.
func TestFrozenFileSystemIsNotSnapshotted(t *testing.T) {
	c := connect(t)
	origin := c.create(t, thinRequest("frozen", 64*mebibyte))
	_, pod := c.mounted(t, origin, mountCapability("ext4"))
	settled(t)
	before := seqnos(t)
	if err := command("fsfreeze", "--freeze", pod); err != nil {
		t.Fatal(err)
	}
	snap := func() error {
		_, err := c.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "frozen", SourceVolumeId: origin.GetVolumeId()})
		return err
	}
	for range 2 {
		refusal{"a snapshot of what is frozen", codes.Aborted, "fsfreeze --unfreeze", snap}.check(t, before)
	}
	if err := command("fsfreeze", "--unfreeze", pod); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(pod, "text"), "thawed")
	eventually(t, time.Minute, "a snapshot of what is thawed", func() bool { return snap() == nil }) // until then: ask again
	c.snapshot(t, "frozen", origin)
}
