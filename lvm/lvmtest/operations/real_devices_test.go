//go:build reallvm

package operations

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/ondisk"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

// TestOneReadingOfAllDevices_RealLVM: device-mapper's list has the devices that sysfs has, and says which are suspended; the disks below each
// are those that a search for one finds; and each volume has the device that a search for it finds.
func TestOneReadingOfAllDevices_RealLVM(t *testing.T) {
	b := reallvm.NewFixture(t).OneAtATime()
	d := b.Start(t)
	mirror := b.Light("mirror", 8*lvm.MiB)
	mirror.Class.Layout, mirror.Class.Mirrors = lvm.LayoutRAID1, 1
	for _, spec := range []lvm.Spec{b.Light("linear", 8*lvm.MiB), mirror, b.Thin("thin", 8*lvm.MiB, lvm.ID{})} {
		d.MustDevice(t, d.MustCreate(t, spec))
	}
	volumes := d.Volumes(t)
	all, err := d.ActiveDevices(t.Context(), volumes)
	hosttest.Must(t, err)
	for _, v := range volumes {
		path, active, err := d.Device(t.Context(), v.ID, v.UUID)
		if got := all[v.ID]; err != nil || !active || got.Path != path || got.Number == 0 {
			t.Errorf("the device of %s is %+v among all, and %s alone: %v, %v", v.Name, got, path, active, err)
		}
	}

	kernel := ondisk.Kernel{Kernel: dm.Kernel{Sys: "/sys", Proc: "/proc", Dev: "/dev"}}
	inSysfs := kernel
	inSysfs.Dev = t.TempDir() // without a control device
	suspended := lvm.DeviceUUID(volumes[0].ID.VG, volumes[0].UUID)
	reallvm.Dmsetup(t, "suspend", "-u", suspended)
	listed, err := kernel.Devices()
	slow, failed := inSysfs.Devices()
	reallvm.Dmsetup(t, "resume", "-u", suspended)
	hosttest.Must(t, err)
	hosttest.Must(t, failed)
	facts := func(devices []lvm.Device) map[string]lvm.Device {
		by := map[string]lvm.Device{}
		for _, device := range devices {
			by[device.UUID] = lvm.Device{Path: filepath.Base(device.Path), Suspended: device.Suspended}
		}
		return by
	}
	if diff := cmp.Diff(facts(slow), facts(listed)); diff != "" || !facts(listed)[suspended].Suspended || len(listed) < 8 {
		t.Errorf("sysfs has these devices (-), and device-mapper these (+):\n%s", diff)
	}

	stacks, err := kernel.Stacks(listed)
	hosttest.Must(t, err)
	for _, device := range listed {
		below, removed, err := kernel.DisksBelow(device.Path)
		disks := slices.Compact(slices.Sorted(slices.Values(stacks.Disks[device.Path])))
		if err != nil || len(disks) == 0 || !slices.Equal(disks, below) || len(removed) > 0 || stacks.OnRemovedDisk[device.Path] {
			t.Errorf("%s is on %q among all, and on %q alone (%v)", device.UUID, disks, below, err)
		}
	}
	if len(stacks.OnVolumes) > 0 {
		t.Errorf("on volumes are %q", stacks.OnVolumes)
	}
}
