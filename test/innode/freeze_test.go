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
	must(t, os.WriteFile(filepath.Join(pod, "text"), []byte(text), 0o600))
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

// LVM would fail half-way on a file system that another process froze, and device-mapper cannot suspend a mapping with one: the driver
// does not start a snapshot.
func TestFrozenFileSystemIsNotSnapshotted(t *testing.T) {
	for name, origin := range map[string]*csi.CreateVolumeRequest{
		"frozen": thinRequest("frozen", 64*mebibyte), "frozen-encrypted": encrypted(thinRequest("frozen-encrypted", 64*mebibyte)),
	} {
		t.Run(name, func(t *testing.T) {
			c := connect(t)
			v := c.create(t, origin)
			o := c.opened(t, v, mountCapability("ext4"), secretOf(t, origin))
			settled(t)
			before := seqnos(t)
			must(t, command("fsfreeze", "--freeze", o.target))
			snap := func() error {
				_, err := c.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: v.GetVolumeId()})
				return err
			}
			for range 2 {
				refusal{"a snapshot of what is frozen", codes.Aborted, "fsfreeze --unfreeze", snap}.check(t, before)
			}
			must(t, command("fsfreeze", "--unfreeze", o.target))
			write(t, filepath.Join(o.target, "text"), "thawed")
			eventually(t, time.Minute, "a snapshot of what is thawed", func() bool { return snap() == nil }) // until then: ask again
			c.snapshot(t, name, v)
		})
	}
}
