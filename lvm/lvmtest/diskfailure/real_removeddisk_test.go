//go:build reallvm

package diskfailure

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/ondisk"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// TestRemovedDiskIsBack_RealLVM: a disk is removed while a linear, a RAID1 and a thin volume on it are in use, and returns with
// another name. The RAID1 volume stays usable, and the driver refreshes it, so both disks have what its pod wrote meanwhile; the others
// map the disk again once they are unused.
func TestRemovedDiskIsBack_RealLVM(t *testing.T) {
	b, disks := newRemovableGroup(t)
	d := b.Start(t)
	mirrored := b.Light("mirror", 8*lvm.MiB)
	mirrored.Class = b.In(lvm.Class{Layout: lvm.LayoutRAID1, Wipe: lvm.WipeNone})
	plain, mirror, thin := d.MustCreate(t, b.Light("plain", 8*lvm.MiB)), d.MustCreate(t, mirrored), d.MustCreate(t, b.Thin("thin", 8*lvm.MiB, lvm.ID{}))
	paths := map[string]string{}
	for _, v := range []lvm.Volume{plain, mirror, thin} {
		path := d.MustActivate(t, v)
		paths[v.Name] = path
	}
	g := b.ReadGroup(t)
	lost := diskBelow(t, g, g.FindLV(plain.ID.LV).Segments[0].Areas[0].PV, disks)
	releasePlain := hold(t, b, paths["plain"])
	releaseMirror := hold(t, b, paths["mirror"])

	former := filepath.Base(lost.path)
	lost.pull(t, paths["plain"])
	if removed := removedBelow(t, paths["mirror"]); !slices.Equal(removed, []string{former}) {
		t.Fatalf("the mirror is on the removed disks %q: the kernel keeps no link to %s", removed, former)
	}
	if path, err := d.Activate(t.Context(), plain.ID, plain.UUID); err != nil || path != paths["plain"] {
		t.Errorf("the linear volume without its disk: %s, %v", path, err)
	}
	stillUsable(t, d, mirror, paths["mirror"])
	reallvm.Fill(t, paths["mirror"], mirror.Size)
	onRemovedDisk(t, d, lvm.ConditionVolumeDataMissing, plain, true)
	onRemovedDisk(t, d, lvm.ConditionVolumeDegraded, mirror, true)

	lost.plug(t)
	onRemovedDisk(t, d, lvm.ConditionVolumeDataMissing, plain, false)
	onRemovedDisk(t, d, lvm.ConditionVolumeOnRemovedDisk, plain, true)
	wait.For(t, 20*time.Second, "the driver refreshes the mirror", func() bool {
		d.MustCapacity(t, b.Class())
		return len(removedBelow(t, paths["mirror"])) == 0
	})
	onRemovedDisk(t, d, lvm.ConditionVolumeDegraded, mirror, false)
	inSync(t, mirror, paths["mirror"])
	releasePlain()
	for _, v := range []lvm.Volume{plain, thin} {
		path := d.MustActivate(t, v)
		stillUsable(t, d, v, path)
		if removed := removedBelow(t, path); len(removed) > 0 {
			t.Errorf("%s still maps %q", v.Name, removed)
		}
		onRemovedDisk(t, d, lvm.ConditionVolumeOnRemovedDisk, v, false)
	}
	releaseMirror()
	b.DeleteAll(t, d)
}

// inSync waits until both images of a RAID1 volume that Fill has written are the same.
func inSync(t *testing.T, v lvm.Volume, device string) {
	t.Helper()
	name := reallvm.Dmsetup(t, "info", "--noheadings", "-c", "-o", "name", device)
	wait.For(t, 20*time.Second, "the kernel copies the mirror's data to the disk that is back", func() bool {
		return strings.Contains(reallvm.Dmsetup(t, "status", name), " raid1 2 AA ")
	})
	for _, image := range []string{"_rimage_0", "_rimage_1"} {
		if written := reallvm.Leaks(t, reallvm.Mapped(t, name+image), v); lvm.Bytes(written)*lvm.MiB != v.Size {
			t.Errorf("%s has %d MiB of what was written, want %s", image, written, v.Size)
		}
	}
}

// newRemovableGroup returns a fixture with a group on two disks that can be removed.
func newRemovableGroup(t *testing.T) (hosttest.Fixture, []*scsiDisk) {
	t.Helper()
	b := reallvm.NewFixture(t)
	disks := newSCSIDisks(t, false)
	b.Group = "nodelvm-removed"
	reallvm.Admin(t, "vgcreate", "-y", "-s", "4m", b.Group, disks[0].path, disks[1].path)
	t.Cleanup(func() {
		for _, d := range disks {
			if d.pulled {
				d.plug(t)
			}
		}
		reallvm.Admin(t, "vgremove", "-ff", "-y", b.Group)
	})
	return b.OneAtATime(), disks
}

// hold opens a device as a pod does, until release or the end of the test.
func hold(t *testing.T, b hosttest.Fixture, device string) (release func()) {
	t.Helper()
	release = sync.OnceFunc(b.Hold(t, device))
	t.Cleanup(release)
	return release
}

// stillUsable checks what staging, publishing and measuring a volume do: its device is found, and can be read.
func stillUsable(t *testing.T, d *hosttest.Driver, v lvm.Volume, device string) {
	t.Helper()
	if path, err := d.Activate(t.Context(), v.ID, v.UUID); err != nil || path != device {
		t.Errorf("activation of %s: %s, %v; want %s", v.Name, path, err, device)
	}
	if _, err := d.Lookup(t.Context(), v.ID); err != nil {
		t.Errorf("lookup of %s: %v", v.Name, err)
	}
	if path, active, err := d.Device(t.Context(), v.ID, v.UUID); err != nil || !active || path != device {
		t.Errorf("the device of %s: %s, %v, %v; want %s", v.Name, path, active, err, device)
	}
	reallvm.ReadAt(t, device, 0, 4096)
}

// removedBelow returns the names of the removed disks that a volume's device maps.
func removedBelow(t *testing.T, device string) []string {
	t.Helper()
	_, removed, err := ondisk.Kernel{Kernel: dm.Kernel{Sys: "/sys", Proc: "/proc", Dev: "/dev"}}.DisksBelow(device)
	hosttest.Must(t, err)
	return removed
}

// diskBelow returns the disk of a physical volume.
func diskBelow(t *testing.T, g lvm.Group, pv string, disks []*scsiDisk) *scsiDisk {
	t.Helper()
	for _, d := range disks {
		if slices.ContainsFunc(g.PVs, func(p lvm.PV) bool { return p.UUID == pv && p.Device == d.path }) {
			return d
		}
	}
	t.Fatalf("no disk has the physical volume %s of %+v", pv, g.PVs)
	return nil
}
