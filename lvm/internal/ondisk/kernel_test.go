package ondisk

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// TestDeviceOnRemovedDisks: a volume's device stays the volume's when its disks are removed while it is active. A device on one of
// unknown origin is not the volume for certain, and the message advises to remove no device.
func TestDeviceOnRemovedDisks(t *testing.T) {
	for what, c := range map[string]struct {
		make func(s *fixture.SysStack)
		want string // in the error; "": the device is found
	}{
		"RAID1, one of two disks": {func(s *fixture.SysStack) {
			s.Mapper("dm-10", "LVM-abcrmeta0", "sda1")
			s.Mapper("dm-11", "LVM-abcrimage0", "sda1")
			s.Mapper("dm-12", "LVM-abcrmeta1")
			s.Mapper("dm-13", "LVM-abcrimage1")
			s.Pull("sdb", "dm-12", "dm-13")
			s.Mapper("dm-14", "LVM-abcvolume", "dm-10", "dm-11", "dm-12", "dm-13")
		}, ""},
		"linear":                    {func(s *fixture.SysStack) { s.Mapper("dm-14", "LVM-abcvolume"); s.Pull("sdb", "dm-14") }, ""},
		"on a network block device": {func(s *fixture.SysStack) { s.Virtual("nbd0", 43); s.Mapper("dm-14", "LVM-abcvolume", "nbd0") }, "cannot confirm that it is the volume"},
	} {
		t.Run(what, func(t *testing.T) {
			s := fixture.NewSysStack(t)
			c.make(s)
			path, active, err := Kernel{dm.Kernel{Sys: s.Sys, Proc: s.Proc, Dev: s.Dev}}.Device("LVM-abcvolume")
			if c.want == "" && (err != nil || !active || path != filepath.Join(s.Dev, "dm-14")) {
				t.Errorf("%q, %v, %v", path, active, err)
			}
			if c.want != "" && (lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "dmsetup remove")) {
				t.Errorf("%q, %v, kind %v: %v", path, active, lvm.KindOf(err), err)
			}
		})
	}
}

// TestDisksOfCapacityZero: a failed disk without capacity counts as removed, so that a RAID volume on it and on others stays the volume. One that
// is on such disks alone is not confirmed.
func TestDisksOfCapacityZero(t *testing.T) {
	for what, c := range map[string]struct {
		empty          []string
		below, removed []string
	}{
		"both work": {nil, []string{"sda", "sdb"}, nil},
		"one":       {[]string{"sdb"}, []string{"sda"}, []string{"sdb"}},
		"both":      {[]string{"sda", "sdb"}, []string{"sda", "sdb"}, nil},
	} {
		s := fixture.NewSysStack(t)
		for _, disk := range []string{"sda", "sdb"} {
			s.Attribute(t, disk, "size", "131072\n")
		}
		s.Mapper("dm-11", "LVM-abcrimage0", "sda")
		s.Mapper("dm-12", "LVM-abcrimage1", "sdb")
		s.Mapper("dm-14", "LVM-abcvolume", "dm-11", "dm-12")
		for _, disk := range c.empty {
			s.Attribute(t, disk, "size", "0\n")
		}
		below, removed, err := Kernel{dm.Kernel{Sys: s.Sys, Proc: s.Proc, Dev: s.Dev}}.DisksBelow("/dev/dm-14")
		var paths []string
		for _, name := range c.below {
			paths = append(paths, filepath.Join(s.Dev, name))
		}
		if err != nil || !slices.Equal(below, paths) || !slices.Equal(removed, c.removed) {
			t.Errorf("%s: on %q, removed %q, %v", what, below, removed, err)
		}
	}
}

// TestStacks: what device-mapper says about the devices below volumes leads to the same result as sysfs, and what it cannot tell comes from
// sysfs.
func TestStacks(t *testing.T) {
	s := fixture.NewSysStack(t)
	for _, disk := range []string{"sdb", "sdc"} {
		s.Make("devices/pci0000:00/host1/block/"+disk, 8)
		s.Attribute(t, disk, "device/model", "DISK\n")
	}
	s.Mapper("dm-10", "LVM-abcrimage0", "sda1")
	s.Mapper("dm-11", "LVM-abcrimage1", "sdb")
	s.Mapper("dm-12", "LVM-abcraid", "dm-10", "dm-11")
	s.Mapper("dm-13", "LVM-abcpulled", "sda1", "sdb")
	s.Mapper("dm-14", "LVM-abcempty", "sda1", "sdc")
	s.Mapper("dm-15", "LVM-abcnothing")
	s.Mapper("dm-20", "CRYPT-LUKS2-x", "dm-0")
	s.Mapper("dm-21", "LVM-evil", "dm-20")
	k := Kernel{dm.Kernel{Sys: s.Sys, Proc: s.Proc, Dev: s.Dev}}
	below := map[uint64][]uint64{}
	for name, parts := range map[string][]string{"dm-0": {"sda1"}, "dm-1": {"sda1"}, "dm-10": {"sda1"}, "dm-11": {"sdb"}, "dm-12": {"dm-10", "dm-11"},
		"dm-13": {"sda1", "sdb"}, "dm-14": {"sda1", "sdc"}, "dm-15": {}, "dm-21": {"dm-20"}} {
		for _, part := range parts {
			below[s.Number(name)] = append(below[s.Number(name)], s.Number(part))
		}
	}
	s.Attribute(t, "sdc", "size", "0\n")
	s.Pull("sdb", "dm-11", "dm-13")
	volumes, err := k.Devices()
	if err != nil {
		t.Fatal(err)
	}
	for i := range volumes {
		volumes[i].Number = s.Number(filepath.Base(volumes[i].Path))
	}
	for what, known := range map[string]map[uint64][]uint64{"device-mapper": below, "sysfs": nil} {
		for i, v := range volumes {
			volumes[i].Below = known[v.Number]
		}
		got := k.stacks(volumes, nil)
		if len(got.OnVolumes) != 1 || !strings.Contains(got.OnVolumes[0], "dm-21") {
			t.Errorf("by %s, on volumes are %q", what, got.OnVolumes)
		}
		for _, v := range volumes {
			removed := slices.Contains([]string{"dm-11", "dm-12", "dm-13", "dm-14"}, filepath.Base(v.Path))
			name := filepath.Base(v.Path)
			if certain := what == "device-mapper" && slices.Contains([]string{"dm-0", "dm-1", "dm-10"}, name); certain != slices.Equal(got.Disks[v.Path], []string{filepath.Join(s.Dev, "sda1")}) {
				t.Errorf("by %s, the disks of %s are %q", what, name, got.Disks[v.Path])
			}
			if got.OnRemovedDisk[v.Path] != removed {
				t.Errorf("by %s, %s is on a removed disk: %v", what, v.Path, !removed)
			}
		}
	}
	f := footings{kernel: k, disks: map[uint64]string{}}
	if disks, whole := f.disksOf(nil, below[s.Number("dm-0")], 0); !whole || !slices.Equal(disks, []string{"sda1"}) {
		t.Errorf("device-mapper alone finds %q below dm-0: %v", disks, whole)
	}
}
