package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/ondisk"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// TestDeviceOfAnotherVolumesContent: a device with a volume's UUID is that volume only if it is on disks.
func TestDeviceOfAnotherVolumesContent(t *testing.T) {
	for what, c := range map[string]struct {
		below string
		make  func(s *fixture.SysStack)
		want  bool
	}{
		"a disk":                 {"sda1", func(*fixture.SysStack) {}, true},
		"a RAID's legs":          {"dm-7", func(s *fixture.SysStack) { s.Mapper("dm-7", "LVM-abcleg", "sda1") }, true},
		"dm-crypt on a disk":     {"dm-7", func(s *fixture.SysStack) { s.Mapper("dm-7", "CRYPT-x", "sda1") }, true},
		"a disk that was pulled": {"dm-7", func(s *fixture.SysStack) { s.Mapper("dm-7", "x") }, true},
		"a raw block volume":     {"loop0", func(s *fixture.SysStack) { s.Virtual("loop0", 7) }, false},
		"legs on a raw block volume": {"dm-7", func(s *fixture.SysStack) {
			s.Virtual("loop0", 7)
			s.Mapper("dm-7", "LVM-evilleg", "loop0")
		}, false},
		"dm-crypt on a volume": {"dm-7", func(s *fixture.SysStack) { s.Mapper("dm-7", "CRYPT-x", "dm-0") }, false},
	} {
		s := fixture.NewSysStack(t)
		c.make(s)
		s.Mapper("dm-9", "LVM-aavictim", c.below)
		e := New(lvm.Config{}, lvm.Machine{Kernel: ondisk.Kernel{Kernel: dm.Kernel{Sys: s.Sys, Proc: s.Proc, Dev: s.Dev}}}, oplock.NewTasks())
		if c.below == "loop0" {
			fixture.Must(t, os.RemoveAll(filepath.Join(s.Dev, "loop0"))) // it cannot be queried
		}
		path, active, err := e.FindDevice(t.Context(), lvm.ID{VG: "a-a", LV: "x"}, "victim")
		if active != c.want || (path != "") != c.want || (err == nil) != c.want {
			t.Errorf("on %s: %q, %v, %v", what, path, active, err)
		}
		if !c.want && lvm.KindOf(err) != lvm.KindConflict {
			t.Errorf("on %s: %v", what, err)
		}
	}
}

// lastCommand records the last command.
type lastCommand struct{ argv []string }

func (r *lastCommand) Run(_ context.Context, argv []string) ([]byte, error) {
	r.argv = argv
	return nil, nil
}

// TestCommandsNameTheirDevices: the driver runs no command that would scan every device of the node.
func TestCommandsNameTheirDevices(t *testing.T) {
	runner := &lastCommand{}
	e := New(lvm.Config{}, lvm.Machine{Runner: runner, Reader: &fixture.Scripted{States: []lvm.State{{}}}}, oplock.NewTasks())
	lost := lvm.Group{Name: "vg", PVs: []lvm.PV{{UUID: "p", Missing: true}}}
	for _, argv := range [][]string{lvmcmd.OnDevices("lvchange", lost), {"fullreport"}, {"vgs", "--devices"}, {"vgs", "--devices", ","}} {
		if _, err := e.runLVM(t.Context(), argv); err == nil || runner.argv != nil {
			t.Errorf("ran %q: %v", argv, err)
		}
	}
	if s, err := e.report(t.Context(), nil); err != nil || len(s.Groups) > 0 || runner.argv != nil {
		t.Errorf("a report on no devices: %+v, %v, %q", s, err, runner.argv)
	}
	_, _ = e.report(t.Context(), []string{"/dev/sda", "/dev/sdb"})
	if len(runner.argv) < 3 || runner.argv[1] != "--devices" || runner.argv[2] != "/dev/sda,/dev/sdb" {
		t.Errorf("a report on two: %q", runner.argv)
	}
}

// TestReadFailsWithoutDeviceList: without a list of devices a read fails; it does not return an empty state.
func TestReadFailsWithoutDeviceList(t *testing.T) {
	r := &ondisk.CheckedReader{Direct: &fixture.Scripted{States: []lvm.State{{}}, Errs: errors.New("no sysfs")}}
	if s, err := r.Read(t.Context()); err == nil || len(s.Groups) > 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestDevicesOnVolumes: the driver reports block devices that the node has on volumes, but no volume of a disk's group.
func TestDevicesOnVolumes(t *testing.T) {
	s := fixture.NewSysStack(t)
	k := ondisk.Kernel{Kernel: dm.Kernel{Sys: s.Sys, Proc: s.Proc, Dev: s.Dev}}
	s.Virtual("md0", 9, "sda")
	s.Attribute(t, "md0", "md/level", "raid1\n")
	onVolumes := func() ([]string, error) {
		volumes, err := k.Devices()
		stacks, failed := k.Stacks(volumes)
		slices.Sort(stacks.OnVolumes)
		return stacks.OnVolumes, errors.Join(err, failed)
	}
	if list, err := onVolumes(); err != nil || len(list) > 0 {
		t.Errorf("on a healthy node: %q, %v", list, err)
	}
	s.Mapper("dm-7", "CRYPT-LUKS2-x", "dm-0") // a tenant's, or the driver's
	s.Mapper("dm-8", "LVM-evil", "dm-7")
	s.Virtual("md127", 9, "dm-0", "dm-1")
	s.Attribute(t, "md127", "md/level", "raid1\n")
	list, err := onVolumes()
	if err != nil || len(list) != 2 || !strings.Contains(list[0], "logical volume (dm-8)") || !strings.Contains(list[1], "RAID (md127)") {
		t.Errorf("%q, %v", list, err)
	}
}

// TestForgedVolumeOnDisk: a device with a volume's UUID is that volume only if it is on physical volumes of its group, and not, for example,
// on a disk of another storage driver, whose user wrote the group's UUIDs to it.
func TestForgedVolumeOnDisk(t *testing.T) {
	legs := func(s *fixture.SysStack) {
		s.Mapper("dm-7", "LVM-aaleg", "sda1")
		s.Mapper("dm-8", "LVM-aaleg2", "sdb")
	}
	for what, c := range map[string]struct {
		below  []string
		make   func(s *fixture.SysStack)
		state  lvm.State // with the physical volumes of the group, as paths below the node's /dev
		pvs    []string
		reread bool
		want   bool
	}{
		"its disk":                 {below: []string{"sda1"}, pvs: []string{"sda1"}, want: true},
		"another disk":             {below: []string{"sdb"}, pvs: []string{"sda1"}},
		"its disk and another":     {below: []string{"sda1", "sdb"}, pvs: []string{"sda1"}},
		"legs on its disks":        {below: []string{"dm-7", "dm-8"}, make: legs, pvs: []string{"sda1", "sdb"}, want: true},
		"a leg on another disk":    {below: []string{"dm-7", "dm-8"}, make: legs, pvs: []string{"sda1"}},
		"multipath":                {below: []string{"dm-7"}, make: func(s *fixture.SysStack) { s.Mapper("dm-7", "mpath-x", "sda", "sdb") }, pvs: []string{"dm-7"}, want: true},
		"a path of its multipath":  {below: []string{"sdb"}, make: func(s *fixture.SysStack) { s.Mapper("dm-7", "mpath-x", "sda", "sdb") }, pvs: []string{"dm-7"}},
		"md":                       {below: []string{"md0"}, make: func(s *fixture.SysStack) { s.Virtual("md0", 9, "sda", "sdb") }, pvs: []string{"md0"}, want: true},
		"its group is not here":    {below: []string{"sdb"}},
		"a disk that vgextend add": {below: []string{"sda1", "sdb"}, pvs: []string{"sda1", "sdb"}, reread: true, want: true},
		"an unreadable disk":       {below: []string{"sda1", "sdb"}, pvs: []string{"sda1"}, state: lvm.State{Unlabeled: []string{"sdb"}}, want: true},
	} {
		s := fixture.NewSysStack(t)
		s.Make("devices/pci0000:00/host1/block/sdb", 8)
		s.Attribute(t, "sdb", "device/model", "DISK\n")
		if c.make != nil {
			c.make(s)
		}
		s.Mapper("dm-9", "LVM-aavictim", c.below...)
		g := lvm.Group{UUID: "a-a", Name: "vg"}
		for _, name := range c.pvs {
			g.PVs = append(g.PVs, lvm.PV{UUID: name, Device: filepath.Join(s.Dev, name)})
		}
		for i, name := range c.state.Unlabeled {
			c.state.Unlabeled[i] = filepath.Join(s.Dev, name)
		}
		if len(g.PVs) > 0 {
			c.state.Groups = []lvm.Group{g}
		}
		disks := &fixture.Scripted{States: []lvm.State{c.state}}
		e := New(lvm.Config{}, lvm.Machine{Reader: disks, Kernel: ondisk.Kernel{Kernel: dm.Kernel{Sys: s.Sys, Proc: s.Proc, Dev: s.Dev}}}, oplock.NewTasks())
		if !c.reread {
			e.LastRead.note(c.state)
		}
		path, active, err := e.FindDevice(t.Context(), lvm.ID{VG: "a-a", LV: "x"}, "victim")
		if active != c.want || (path != "") != c.want || (err == nil) != c.want || !c.want && lvm.KindOf(err) != lvm.KindConflict {
			t.Errorf("on %s: %q, %v, %v", what, path, active, err)
		}
		if (disks.Reads > 0) != (c.reread || !c.want) {
			t.Errorf("on %s: the disks were read %d times", what, disks.Reads)
		}
		v := lvm.Volume{ID: lvm.ID{VG: "a-a", LV: "x"}, UUID: "victim"}
		for _, certain := range []bool{false, true} { // whether the reading of all devices says what its disks are
			e.Machine.Kernel = certainKernel{ondisk.Kernel{Kernel: dm.Kernel{Sys: s.Sys, Proc: s.Proc, Dev: s.Dev}}, certain}
			e.mapped.invalidate()
			found, err := e.FindDevices(t.Context(), []lvm.Volume{v})
			if _, is := found[v.ID]; err != nil || is != c.want {
				t.Errorf("on %s: among all devices, its disks certain: %v: %v, %v", what, certain, found, err)
			}
		}
	}
}

// certainKernel may know the disks of all devices.
type certainKernel struct {
	ondisk.Kernel
	certain bool
}

func (k certainKernel) Stacks(volumes []lvm.Device) (lvm.Stacks, error) {
	disks := map[string][]string{}
	for _, v := range volumes {
		if below, _, err := k.DisksBelow(v.Path); err == nil && k.certain {
			disks[v.Path] = below
		}
	}
	return lvm.Stacks{Disks: disks}, nil
}

// activeKernel is a kernel with one active volume.
type activeKernel struct {
	fixture.Kernel
	uuid, name, path string
}

func (k activeKernel) Devices() ([]lvm.Device, error) {
	return []lvm.Device{{UUID: "LVM-other", Path: "/dev/null"}, {UUID: k.uuid + "-tpool", Path: "/dev/null"}, {UUID: k.uuid, Path: k.path}}, nil
}

func (k activeKernel) Mapping(uint64) (uuid, name string, err error) { return k.uuid, k.name, nil }

// openVolume is an Encryptor with one open volume.
type openVolume struct {
	lvm.Encryptor
	handle string
}

func (o openVolume) Mapping(handle string) (string, uint64, bool, error) {
	return "/dev/dm-7", 7, handle == o.handle, nil
}

// TestLookupUnreadable: of a group that the driver cannot read, device-mapper shows which volume has a name, and whether it is open and encrypted.
// Nothing proves that it was never formatted. The place of its mark is on an encrypted volume's mapping too.
func TestLookupUnreadable(t *testing.T) {
	g := lvm.Group{UUID: "AAAAAA-bbbb-CCCC-dddd-EEEE-ffff-GGGGGG", Name: "vg-a", Unreadable: "a new syntax"}
	const uuid = "aaaaaa-bbbb-cccc-dddd-eeee-ffff-gggggg"
	device := filepath.Join(t.TempDir(), "dm-9")
	fixture.Must(t, os.WriteFile(device, nil, 0o600))
	fixture.Must(t, os.Truncate(device, int64(64*lvm.MiB)))
	e := New(lvm.Config{}, lvm.Machine{Kernel: activeKernel{uuid: lvm.DeviceUUID(g.UUID, uuid), name: "vg--a-pvc--1", path: device}}, oplock.NewTasks())
	v, err := e.LookupUnreadable(g, lvm.ID{VG: g.UUID, LV: "pvc-1"})
	if err != nil || v.UUID != uuid || v.State != lvm.StateReady || v.FormatMark != lvm.FormatMarkOffset(64*lvm.MiB) || v.Class.Encryption != lvm.EncryptionNone {
		t.Errorf("%+v, %v", v, err)
	}
	e.Config.Encryption = openVolume{handle: v.ID.String()}
	if v, err := e.LookupUnreadable(g, v.ID); err != nil || v.Class.Encryption != lvm.EncryptionLUKS2 {
		t.Errorf("open and encrypted: %+v, %v", v, err)
	}
	if _, err := e.LookupUnreadable(g, lvm.ID{VG: g.UUID, LV: "pvc-2"}); lvm.KindOf(err) != lvm.KindBusy {
		t.Errorf("another name: %v", err)
	}
}
