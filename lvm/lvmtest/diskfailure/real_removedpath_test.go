//go:build reallvm

package diskfailure

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// TestRemovedPath_RealLVM: the only disk of a group is made of two, one of which is removed while a volume is active. The group, its
// volume and its capacity stay as they are.
func TestRemovedPath_RealLVM(t *testing.T) {
	t.Run("multipath", func(t *testing.T) {
		b := reallvm.NewFixture(t)
		paths := newSCSIDisks(t, true)
		losesNothing(t, b, newMultipath(t, paths), paths[1])
	})
	t.Run("software RAID", func(t *testing.T) {
		b := reallvm.NewFixture(t)
		disks := newSCSIDisks(t, false)
		losesNothing(t, b, newSoftwareRAID(t, disks), disks[1])
	})
}

// losesNothing creates a group with a volume on the device, and removes one of the disks below the device.
func losesNothing(t *testing.T, b hosttest.Fixture, device string, below *scsiDisk) {
	t.Helper()
	b.Group = "nodelvm-paths"
	reallvm.Admin(t, "vgcreate", "-y", "-s", "4m", "--devices", device, b.Group, device)
	t.Cleanup(func() { reallvm.Admin(t, "vgremove", "-ff", "-y", "--devices", device, b.Group) })
	d := b.OneAtATime().Start(t)
	v := d.MustCreate(t, b.Light("a", 8*lvm.MiB))
	active := d.MustActivate(t, v)
	whole := d.MustCapacity(t, b.Class())

	below.pull(t, device)
	s := reallvm.ReadDisks(t)
	if g, there := reallvm.FindGroup(s, b.Group); !there || !reallvm.IsWhole(g) || s.CheckComplete() != nil {
		t.Errorf("without one of its disks the node has %+v, %v", g, s.CheckComplete())
	}
	if c := d.MustCapacity(t, b.Class()); c != whole || whole.Largest == 0 {
		t.Errorf("capacity %+v, before %+v", c, whole)
	}
	stillUsable(t, d, v, active)
	hosttest.Must(t, d.Delete(t.Context(), v.ID)) // wipes
	d.WaitWiped(t)
}

// newMultipath creates a multipath device over two paths to a disk.
func newMultipath(t *testing.T, paths []*scsiDisk) string {
	t.Helper()
	const name = "nodelvm-mpath"
	reallvm.Tool(t, "modprobe", "dm-multipath")
	reallvm.Tool(t, "modprobe", "dm-round-robin")
	sectors := strings.TrimSpace(reallvm.Tool(t, "blockdev", "--getsz", paths[0].path))
	reallvm.Tool(t, "dmsetup", "create", "--noudevsync", name, "--uuid", "mpath-nodelvm", "--table",
		fmt.Sprintf("0 %s multipath 0 0 1 1 round-robin 0 2 1 %s 1000 %s 1000", sectors, paths[0].path, paths[1].path))
	t.Cleanup(func() { reallvm.Tool(t, "dmsetup", "remove", "--noudevsync", "--retry", name) })
	return reallvm.Mapped(t, name)
}

// newSoftwareRAID creates a RAID1 array (md) of two disks in step. Its data begins after the disks' first MiB, and it has no metadata, so
// the kernel alone makes it: a node has no mdadm.
func newSoftwareRAID(t *testing.T, disks []*scsiDisk) string {
	t.Helper()
	const name = "md127"
	reallvm.Tool(t, "modprobe", "raid1")
	setKernel(t, "/sys/module/md_mod/parameters/new_array", name)
	array := filepath.Join("/sys/class/block", name, "md")
	set := func(attribute string, value any) { setKernel(t, filepath.Join(array, attribute), value) }
	t.Cleanup(func() {
		set("array_state", "clear")
		wait.For(t, 20*time.Second, "the kernel removes "+name, func() bool {
			_, err := os.Stat(array)
			return os.IsNotExist(err)
		})
	})
	set("level", "raid1")
	set("raid_disks", len(disks))
	for i, d := range disks {
		disk := filepath.Base(d.path)
		number, err := os.ReadFile(filepath.Join("/sys/class/block", disk, "dev"))
		hosttest.Must(t, err)
		set("new_dev", strings.TrimSpace(string(number)))
		set("dev-"+disk+"/offset", 2048) // sectors of 512 bytes
		set("dev-"+disk+"/slot", i)
	}
	set("component_size", 90<<10) // KiB
	set("resync_start", "none")
	set("array_state", "active")
	return "/dev/" + name
}
