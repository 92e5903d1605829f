//go:build reallvm

package diskfailure

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

const removedGroup = "nodelvm-removed"

// scsiDisk is a disk in memory that can be removed while it is open, as a disk that is pulled (scsi_debug).
type scsiDisk struct {
	host string // its SCSI host in sysfs
	path string // below /dev, since it was plugged in last
}

// newSCSIDisks creates two disks, each on a host of its own.
func newSCSIDisks(t *testing.T) []*scsiDisk {
	t.Helper()
	reallvm.Tool(t, "modprobe", "sd_mod")
	reallvm.Tool(t, "modprobe", "scsi_debug", "add_host=2", "per_host_store=1", "dev_size_mb=96", "delay=0")
	t.Cleanup(func() { reallvm.Tool(t, "modprobe", "--remove", "--wait", "20000", "scsi_debug") })
	hosts, err := filepath.Glob("/sys/bus/pseudo/drivers/scsi_debug/adapter*/host*")
	hosttest.Must(t, err)
	if len(hosts) != 2 {
		t.Fatalf("scsi_debug has the hosts %q", hosts)
	}
	disks := make([]*scsiDisk, 0, len(hosts))
	for _, host := range hosts {
		d := &scsiDisk{host: host}
		d.awaitPath(t, "")
		disks = append(disks, d)
	}
	return disks
}

// awaitPath waits until the kernel has the disk under another name than before.
func (d *scsiDisk) awaitPath(t testing.TB, before string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		found, err := filepath.Glob(filepath.Join(d.host, "target*/*/block/sd*"))
		hosttest.Must(t, err)
		if len(found) == 1 {
			if d.path = "/dev/" + filepath.Base(found[0]); d.path == before {
				t.Fatalf("the disk is back under its former name %s, so the test shows nothing", before)
			}
			if _, err := os.Stat(d.path); err == nil {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s has the disks %q", d.host, found)
		}
	}
}

// pull removes the disk, whether it is in use or not.
func (d *scsiDisk) pull(t testing.TB) {
	t.Helper()
	entry := "/sys/class/block/" + filepath.Base(d.path)
	hosttest.Must(t, os.WriteFile(entry+"/device/delete", []byte("1"), 0o200))
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(entry); os.IsNotExist(err) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s cannot be removed", d.path)
		}
	}
}

// plug adds the disk again, with its content.
func (d *scsiDisk) plug(t testing.TB) {
	t.Helper()
	before := d.path
	hosttest.Must(t, os.WriteFile(filepath.Join(d.host, "scsi_host", filepath.Base(d.host), "scan"), []byte("- - -"), 0o200))
	d.awaitPath(t, before)
}

// newRemovableGroup returns a fixture with a group on two disks that can be removed.
func newRemovableGroup(t *testing.T) (hosttest.Fixture, []*scsiDisk) {
	b := reallvm.NewFixture(t)
	disks := newSCSIDisks(t)
	b.Group = removedGroup
	reallvm.Admin(t, "vgcreate", "-y", "-s", "4m", removedGroup, disks[0].path, disks[1].path)
	t.Cleanup(func() { reallvm.Admin(t, "vgremove", "-ff", "-y", removedGroup) })
	return b.OneAtATime(), disks
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

// TestRemovedDiskIsBack_RealLVM: a disk is removed while a linear, a RAID1 and a thin volume on it are in use, and returns with
// another name. The RAID1 volume stays usable, and the driver refreshes it; the others map the disk again once they are unused.
func TestRemovedDiskIsBack_RealLVM(t *testing.T) {
	b, disks := newRemovableGroup(t)
	d := b.Start(t)
	mirrored := b.Light("mirror", 8*lvm.MiB)
	mirrored.Class = b.In(lvm.Class{Layout: lvm.LayoutRAID1, Wipe: lvm.WipeNone})
	plain, mirror, thin := d.MustCreate(t, b.Light("plain", 8*lvm.MiB)), d.MustCreate(t, mirrored), d.MustCreate(t, b.Thin("thin", 8*lvm.MiB, lvm.ID{}))
	paths := map[string]string{}
	for _, v := range []lvm.Volume{plain, mirror, thin} {
		path, err := d.Activate(t.Context(), v.ID, v.UUID)
		hosttest.Must(t, err)
		paths[v.Name] = path
	}
	g := b.ReadGroup(t)
	lost := diskBelow(t, g, g.FindLV(plain.ID.LV).Segments[0].Areas[0].PV, disks)
	releasePlain, releaseMirror := b.Hold(t, paths["plain"]), b.Hold(t, paths["mirror"])
	kernel := dm.Kernel{Sys: "/sys", Proc: "/proc", Dev: "/dev"}
	below := func(path string) (removed []string) {
		_, removed, err := kernel.DisksBelow(path)
		hosttest.Must(t, err)
		return removed
	}

	former := filepath.Base(lost.path)
	lost.pull(t)
	if removed := below(paths["mirror"]); !slices.Equal(removed, []string{former}) {
		t.Fatalf("the mirror is on the removed disks %q: the kernel keeps no link to %s", removed, former)
	}
	for _, v := range []lvm.Volume{plain, mirror} {
		if path, err := d.Activate(t.Context(), v.ID, v.UUID); err != nil || path != paths[v.Name] {
			t.Errorf("%s without its disk: %s, %v", v.Name, path, err)
		}
	}
	reallvm.ReadAt(t, paths["mirror"], 0, 4096)
	onRemovedDisk(t, d, lvm.ConditionVolumeDataMissing, plain, true)
	onRemovedDisk(t, d, lvm.ConditionVolumeDegraded, mirror, true)

	lost.plug(t)
	onRemovedDisk(t, d, lvm.ConditionVolumeDataMissing, plain, false)
	onRemovedDisk(t, d, lvm.ConditionVolumeOnRemovedDisk, plain, true)
	for deadline := time.Now().Add(time.Minute); len(below(paths["mirror"])) > 0; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the driver does not refresh the mirror: %s", reallvm.Tool(t, "dmsetup", "table"))
		}
		d.MustCapacity(t, b.Class())
	}
	onRemovedDisk(t, d, lvm.ConditionVolumeDegraded, mirror, false)
	releasePlain()
	for _, v := range []lvm.Volume{plain, thin} {
		path, err := d.Activate(t.Context(), v.ID, v.UUID)
		hosttest.Must(t, err)
		reallvm.ReadAt(t, path, 0, 4096)
		if removed := below(path); len(removed) > 0 {
			t.Errorf("%s still maps %q", v.Name, removed)
		}
		onRemovedDisk(t, d, lvm.ConditionVolumeOnRemovedDisk, v, false)
	}
	if status := reallvm.Tool(t, "dmsetup", "status", strings.TrimSpace(reallvm.Tool(t, "dmsetup", "info", "--noheadings", "-c", "-o", "name", paths["mirror"]))); !strings.Contains(status, " raid1 2 ") {
		t.Errorf("the mirror's status: %s", status)
	}
	releaseMirror()
	for _, v := range []lvm.Volume{plain, mirror, thin} {
		hosttest.Must(t, d.Delete(t.Context(), v.ID))
	}
	d.WaitWiped(t)
}
