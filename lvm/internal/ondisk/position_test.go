package ondisk

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// stack is a SysStack whose loop devices return their backing devices.
type stack struct {
	*fixture.SysStack
	loops  map[string]loopStatus // by the name of a loop device
	opened []string              // loop devices that were asked, by name
	mu     sync.Mutex
}

func newStack(t *testing.T) *stack {
	return &stack{SysStack: fixture.NewSysStack(t), loops: map[string]loopStatus{}}
}

func (s *stack) loop(name string, behind loopStatus) {
	s.T.Helper()
	s.Virtual(name, majorLoop)
	s.attach(name, behind)
}

func (s *stack) attach(name string, behind loopStatus) {
	s.T.Helper()
	s.Attribute(s.T, name, "loop/backing_file", "/dev/sda\n") // misleading: names do not count
	s.loops[name] = behind
}

// ask returns the status of an open loop device.
func (s *stack) ask(fd int) (loopStatus, error) {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return loopStatus{}, err
	}
	s.mu.Lock() // the reader reads devices concurrently
	s.opened = append(s.opened, filepath.Base(path))
	s.mu.Unlock()
	behind, attached := s.loops[filepath.Base(path)]
	if !attached {
		return behind, unix.ENXIO
	}
	return behind, nil
}

func (s *stack) reader() *Disks {
	d := disksOf(s.TestNode)
	d.backing = s.ask
	return d
}

// forge writes a physical volume of a group with the tag "fast" to a device.
func (s *stack) forge(name string) {
	s.T.Helper()
	content := bytes.TrimRight(fixture.Unzip(s.T, "testdata/groups/linear/loop0.gz"), "\x00")
	f, err := os.OpenFile(filepath.Join(s.Dev, name), os.O_WRONLY, 0)
	fixture.Must(s.T, err)
	_, err = f.Write(content)
	fixture.Must(s.T, errors.Join(err, f.Close()))
}

// TestPositions: the reader finds a physical volume on any stack of disks only, and on no other device.
func TestPositions(t *testing.T) {
	const disks, volume, unknown, nothing, removed = MadeOfDisks, MadeOfVolume, madeOfUnknown, MadeOfNothing, madeOfRemoved
	onFileOf := func(s *stack, name string) loopStatus { return loopStatus{fileSystem: s.Number(name)} }
	onDevice := func(s *stack, name string) loopStatus { return loopStatus{device: s.Number(name), fileSystem: 5} }
	for what, c := range map[string]struct {
		device string
		want   MadeOf
		make   func(s *stack)
	}{
		"a disk":      {"sda", disks, func(*stack) {}},
		"a partition": {"sda1", disks, func(*stack) {}},
		"an NVMe disk over several paths": {"nvme0n1", disks, func(s *stack) {
			s.Make("devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1", 259)
			s.Attribute(s.T, "nvme0n1", "device/model", "x")
		}},
		"multipath":          {"dm-5", disks, func(s *stack) { s.Mapper("dm-5", "mpath-x", "sda") }},
		"dm-crypt on a disk": {"dm-5", disks, func(s *stack) { s.Mapper("dm-5", "CRYPT-LUKS2-x", "sda1") }},
		"md on disks":        {"md0", disks, func(s *stack) { s.Virtual("md0", 9, "sda", "sda1") }},
		"a partition of md": {"md0p1", disks, func(s *stack) {
			s.Virtual("md0", 9, "sda")
			s.Make("devices/virtual/block/md0/md0p1", 259)
			s.Attribute(s.T, "md0p1", "partition", "1\n")
		}},
		"a loop device on a disk":        {"loop0", disks, func(s *stack) { s.loop("loop0", onDevice(s, "sda")) }},
		"a loop device on a disk's file": {"loop0", disks, func(s *stack) { s.loop("loop0", onFileOf(s, "sda1")) }},
		"a RAM disk":                     {"ram0", disks, func(s *stack) { s.Virtual("ram0", 1) }},
		"zram": {"zram0", disks, func(s *stack) {
			s.Virtual("zram0", 252)
			s.Attribute(s.T, "zram0", "mm_stat", "0\n")
			s.Attribute(s.T, "zram0", "backing_dev", "none\n")
		}},

		"a logical volume":                 {"dm-0", volume, func(*stack) {}},
		"a raw block volume":               {"loop0", volume, func(s *stack) { s.loop("loop0", onDevice(s, "dm-0")) }},
		"loop on loop on a volume":         {"loop1", volume, func(s *stack) { s.loop("loop0", onDevice(s, "dm-0")); s.loop("loop1", onDevice(s, "loop0")) }},
		"a file on a volume's file system": {"loop0", volume, func(s *stack) { s.loop("loop0", onFileOf(s, "dm-1")) }},
		"a file on dm-crypt on a volume":   {"loop0", volume, func(s *stack) { s.Mapper("dm-5", "CRYPT-x", "dm-1"); s.loop("loop0", onFileOf(s, "dm-5")) }},
		"a partition of a raw block volume": {"loop0p1", volume, func(s *stack) {
			s.loop("loop0", onDevice(s, "dm-0"))
			s.Make("devices/virtual/block/loop0/loop0p1", 259)
			s.Attribute(s.T, "loop0p1", "partition", "1\n")
		}},
		"kpartx on a volume":                  {"dm-5", volume, func(s *stack) { s.Mapper("dm-5", "part1-LVM-abc", "dm-0") }},
		"kpartx on a raw block volume":        {"dm-5", volume, func(s *stack) { s.loop("loop0", onDevice(s, "dm-0")); s.Mapper("dm-5", "part1-x", "loop0") }},
		"dm-crypt on a volume":                {"dm-5", volume, func(s *stack) { s.Mapper("dm-5", "CRYPT-LUKS2-x", "dm-0") }},
		"dm-crypt on a raw block volume":      {"dm-5", volume, func(s *stack) { s.loop("loop0", onDevice(s, "dm-0")); s.Mapper("dm-5", "CRYPT-LUKS2-x", "loop0") }},
		"md on volumes":                       {"md127", volume, func(s *stack) { s.Virtual("md127", 9, "dm-0", "dm-1") }},
		"md on a disk and a raw block volume": {"md127", volume, func(s *stack) { s.loop("loop0", onDevice(s, "dm-0")); s.Virtual("md127", 9, "sda", "loop0") }},
		"bcache on a volume":                  {"bcache0", volume, func(s *stack) { s.Virtual("bcache0", 250, "dm-0") }},
		"a volume in a group inside a volume": {"dm-9", volume, func(s *stack) { s.loop("loop0", onDevice(s, "dm-0")); s.Mapper("dm-9", "LVM-evil", "loop0") }},
		"a loop device on an LV inside an LV": {"loop1", volume, func(s *stack) {
			s.loop("loop0", onDevice(s, "dm-0"))
			s.Mapper("dm-9", "LVM-evil", "loop0")
			s.loop("loop1", onDevice(s, "dm-9"))
		}},
		"a thin volume's raw block volume": {"loop0", volume, func(s *stack) {
			s.Mapper("dm-8", "LVM-abcpool-tpool", "dm-0", "dm-1")
			s.Mapper("dm-9", "LVM-abcthin", "dm-8")
			s.loop("loop0", onDevice(s, "dm-9"))
		}},
		"multipath on a disk and a raw volume": {"dm-5", volume, func(s *stack) { s.loop("loop0", onDevice(s, "dm-0")); s.Mapper("dm-5", "mpath-x", "sda", "loop0") }},

		"a network block device":       {"nbd0", unknown, func(s *stack) { s.Virtual("nbd0", 43) }},
		"a device of a program (ublk)": {"ublkb0", unknown, func(s *stack) { s.Virtual("ublkb0", 259) }},
		"a Ceph image": {"rbd0", volume, func(s *stack) {
			s.Make("devices/rbd/0/block/rbd0", 252)
			s.Attribute(s.T, "rbd0", "device/x", "")
			fixture.Must(s.T, os.Symlink("../../../bus/rbd", filepath.Join(s.Sys, "class/block/rbd0/device/subsystem")))
		}},
		"a mapper of nothing":             {"dm-5", nothing, func(s *stack) { s.Mapper("dm-5", "x") }},
		"a mapper without a UUID":         {"dm-5", nothing, func(s *stack) { s.Mapper("dm-5", "") }},
		"dm-crypt on a mapper of nothing": {"dm-6", nothing, func(s *stack) { s.Mapper("dm-5", "mpath-x"); s.Mapper("dm-6", "CRYPT-x", "dm-5") }},
		"md on a disk and a mapper of nothing": {"md0", disks, func(s *stack) {
			s.Mapper("dm-5", "x")
			s.Virtual("md0", 9, "sda1", "dm-5")
			s.Attribute(s.T, "dm-5", "holders/md0", "")
		}},
		"a loop device on btrfs":             {"loop0", unknown, func(s *stack) { s.loop("loop0", loopStatus{fileSystem: 47}) }},
		"dm-crypt on a network block device": {"dm-5", unknown, func(s *stack) { s.Virtual("nbd0", 43); s.Mapper("dm-5", "CRYPT-x", "nbd0") }},
		"a loop device on what is removed":   {"loop0", removed, func(s *stack) { s.loop("loop0", loopStatus{device: unix.Mkdev(253, 99)}) }},
		"a loop of loops":                    {"loop0", unknown, func(s *stack) { s.loop("loop0", loopStatus{}); s.loops["loop0"] = onDevice(s, "loop0") }},
		"slaves that cannot be read":         {"md0", unknown, func(s *stack) { s.Virtual("md0", 9); s.Attribute(s.T, "md0", "slaves", "") }},
		"md on a disk and a removed disk":    {"md0", disks, func(s *stack) { s.Virtual("md0", 9, "sda1"); s.Pull("sdb", "md0") }},
		"multipath with a removed path":      {"dm-5", disks, func(s *stack) { s.Mapper("dm-5", "mpath-x", "sda"); s.Pull("sdb", "dm-5") }},
		"md on dm-crypt on a removed disk": {"md0", disks, func(s *stack) {
			s.Mapper("dm-5", "CRYPT-x")
			s.Pull("sdb", "dm-5")
			s.Virtual("md0", 9, "dm-5", "sda1")
			s.Attribute(s.T, "dm-5", "holders/md0", "")
		}},
		"md on a removed disk and a volume":      {"md0", volume, func(s *stack) { s.Virtual("md0", 9, "dm-0"); s.Pull("sdb", "md0") }},
		"multipath on removed disks only":        {"dm-5", removed, func(s *stack) { s.Mapper("dm-5", "mpath-x"); s.Pull("sdb", "dm-5"); s.Pull("sdc", "dm-5") }},
		"md on removed disks only":               {"md0", removed, func(s *stack) { s.Virtual("md0", 9); s.Pull("sdb", "md0") }},
		"a removed disk whose name a volume has": {"md0", removed, func(s *stack) { s.Virtual("md0", 9); s.Pull("dm-9", "md0"); s.Mapper("dm-9", "LVM-abc9", "sda1") }},
		"a partition of md on removed disks": {"md0p1", removed, func(s *stack) {
			s.Virtual("md0", 9)
			s.Pull("sdb", "md0")
			s.Make("devices/virtual/block/md0/md0p1", 259)
			s.Attribute(s.T, "md0p1", "partition", "1\n")
		}},
		"zram that writes back": {"zram0", unknown, func(s *stack) {
			s.Virtual("zram0", 252)
			s.Attribute(s.T, "zram0", "mm_stat", "0\n")
			s.Attribute(s.T, "zram0", "backing_dev", "/dev/dm-0\n")
		}},
	} {
		t.Run(what, func(t *testing.T) {
			s := newStack(t)
			fixture.Must(t, os.MkdirAll(filepath.Join(s.Proc, "self"), 0o755))
			fixture.Must(t, os.WriteFile(filepath.Join(s.Proc, "self/mountinfo"), []byte("28 21 0:24 / /run rw - tmpfs run rw\n30 1 0:47 / / rw - btrfs /dev/sda1 rw\n"), 0o600))
			c.make(s)
			s.forge(c.device)
			where := s.reader().positions()
			pos := where.Walk(c.device, 0)
			if pos.MadeOf != c.want || (pos.Reason == "") != (c.want == disks) {
				t.Errorf("its position is %+v, want %d", pos, c.want)
			}
			state, err := s.reader().Read(t.Context())
			fixture.Must(t, err)
			failed := pos.err != nil // then the device may have a physical volume
			if found := len(state.Groups) > 0; found != (c.want == disks) || (len(state.UnreadDevices) > 0) != failed {
				t.Errorf("its group is found: %v; unread %q", found, state.UnreadDevices)
			}
			if told := strings.Contains(fmt.Sprint(state.Skipped), "/"+c.device+" is not searched"); told != (c.want != disks && c.want != volume && !failed) {
				t.Errorf("told of what is not searched: %q", state.Skipped)
			}
			if offered := slices.Contains(state.Devices, filepath.Join(s.Dev, c.device)); offered != (c.want == disks) {
				t.Errorf("LVM may look at %q", state.Devices)
			}
		})
	}
}

// TestUnreadPosition: a device of which the kernel cannot say what it is made of, or whose disks were removed, may have a physical
// volume, so the reading is incomplete; a device that no reading accepts does not count.
func TestUnreadPosition(t *testing.T) {
	for what, c := range map[string]struct {
		make     func(s *stack)
		complete bool
	}{
		"an error of sysfs":      {func(s *stack) { s.Virtual("md0", 9); s.Attribute(s.T, "md0", "slaves", "") }, false},
		"removed disks":          {func(s *stack) { s.Virtual("md0", 9); s.Pull("sdb", "md0") }, false},
		"a network block device": {func(s *stack) { s.Virtual("md0", 43) }, true},
	} {
		s := newStack(t)
		c.make(s)
		state, err := s.reader().Read(t.Context())
		fixture.Must(t, err)
		if err := state.CheckComplete(); (err == nil) != c.complete || err != nil && !strings.Contains(err.Error(), "md0 could not be read: ") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestDeviceThatHadPV: a device that had a physical volume keeps it, as an unresponsive device, while its disks are removed or it
// is unknown what it is made of. On a volume it has another content.
func TestDeviceThatHadPV(t *testing.T) {
	for what, c := range map[string]struct {
		change func(s *stack)
		groups int
	}{
		"its disks are removed":   {func(s *stack) { s.Pull("sdb", "md0") }, 1},
		"a disk of it is unknown": {func(s *stack) { s.Virtual("nbd0", 43); s.Attribute(s.T, "md0", "slaves/nbd0", "") }, 1},
		"sysfs fails": {func(s *stack) {
			fixture.Must(s.T, os.RemoveAll(filepath.Join(s.Sys, "class/block/md0/slaves")))
			s.Attribute(s.T, "md0", "slaves", "")
		}, 1},
		"it is on a volume": {func(s *stack) { s.Attribute(s.T, "md0", "slaves/dm-0", "") }, 0},
	} {
		t.Run(what, func(t *testing.T) {
			s := newStack(t)
			s.Make("devices/pci0000:00/host1/block/sdb", 8)
			s.Attribute(t, "sdb", "device/model", "DISK\n")
			s.Virtual("md0", 9, "sdb")
			s.forge("md0")
			d := s.reader()
			_, err := d.Read(t.Context())
			fixture.Must(t, err)
			c.change(s)
			for range 2 {
				state, err := d.Read(t.Context())
				fixture.Must(t, err)
				if len(state.Groups) != c.groups {
					t.Fatalf("%d groups; unread %q, skipped %q", len(state.Groups), state.UnreadDevices, state.Skipped)
				}
				if c.groups > 0 && (!strings.Contains(state.Groups[0].Problem, "md0 is unresponsive") || len(state.UnreadDevices) != 1 || slices.Contains(state.Devices, filepath.Join(s.Dev, "md0"))) {
					t.Errorf("problem %q, unread %q, LVM may look at %q", state.Groups[0].Problem, state.UnreadDevices, state.Devices)
				}
			}
		})
	}
}

// TestMemoryFile: a loop device over a file in memory is not made of a volume.
func TestMemoryFile(t *testing.T) {
	s := newStack(t)
	fixture.Must(t, os.MkdirAll(filepath.Join(s.Proc, "self"), 0o755))
	fixture.Must(t, os.WriteFile(filepath.Join(s.Proc, "self/mountinfo"), []byte("30 1 0:47 / / rw - btrfs /dev/sda1 rw\n28 21 0:24 / /dev/shm rw shared:4 - tmpfs shm rw\n"), 0o600))
	s.loop("loop0", loopStatus{fileSystem: unix.Mkdev(0, 24)})
	s.loop("loop1", loopStatus{fileSystem: unix.Mkdev(0, 25)})
	where := s.reader().positions()
	if pos := where.Walk("loop0", 0); pos.MadeOf != MadeOfDisks {
		t.Errorf("in memory: %+v", pos)
	}
	if pos := where.Walk("loop1", 0); pos.MadeOf != madeOfUnknown {
		t.Errorf("in a file system that is not mounted here: %+v", pos)
	}
}

// TestReattachedLoop: a loop device keeps its inode, its number and perhaps its size when it is attached to something else.
func TestReattachedLoop(t *testing.T) {
	s := newStack(t)
	s.loop("loop0", loopStatus{device: s.Number("sda1")})
	s.forge("loop0")
	d := s.reader()
	for _, c := range []struct {
		behind string
		groups int
	}{{"sda1", 1}, {"dm-0", 0}, {"sda1", 1}, {"dm-1", 0}} {
		s.attach("loop0", loopStatus{device: s.Number(c.behind)})
		state, err := d.Read(t.Context())
		fixture.Must(t, err)
		if len(state.Groups) != c.groups || len(state.Skipped) > 0 {
			t.Errorf("on %s: %d groups, skipped %q", c.behind, len(state.Groups), state.Skipped)
		}
	}
}

// TestReusedNumber: the reader does not apply a listed device's position to another device that replaced it.
func TestReusedNumber(t *testing.T) {
	s := newStack(t)
	s.Mapper("dm-5", "CRYPT-x", "sda1")
	s.forge("dm-5")
	s.forge("sda")
	found, err := new(scanner).scan(t.Context(), s.Sys, s.Proc, s.Dev)
	fixture.Must(t, err)
	r := s.reader().prober()
	for _, name := range []string{"dm-5", "sda"} {
		i := slices.IndexFunc(found.list, func(d BlockDevice) bool { return d.Name == name })
		if p := r.probe(found.list[i], probe{}); p.label == nil || p.err != nil {
			t.Fatalf("%s: %+v", name, p)
		}
		entry := filepath.Join(s.Sys, "class/block", name)
		to, err := os.Readlink(entry)
		fixture.Must(t, errors.Join(err, os.Rename(entry, entry+".gone"), os.Symlink(to, entry)))
		if p := r.probe(found.list[i], probe{}); p.label != nil || p.err == nil {
			t.Errorf("%s is another device now, and is read as the one that it was: %+v", name, p)
		}
	}
}

// TestLoopDeviceStaysOpenDuringCheck: the reader determines a loop device's position while the loop device is open, before it reads any
// content.
func TestLoopDeviceStaysOpenDuringCheck(t *testing.T) {
	s := newStack(t)
	s.loop("loop0", loopStatus{device: s.Number("dm-0")})
	d := s.reader()
	_, err := d.Read(t.Context())
	fixture.Must(t, err)
	if !slices.Equal(s.opened, []string{"loop0"}) {
		t.Errorf("loop devices that were asked: %q", s.opened)
	}
	s.loop("loop1", loopStatus{device: s.Number("sda")})
	if pos := d.positions().Walk("loop1", 0); pos.MadeOf != MadeOfDisks || fixture.IsOpen(t, filepath.Join(s.Dev, "loop1")) {
		t.Errorf("%+v, and it stays open", pos)
	}
}

// TestPositionOfVolumeOnRemovedDisks: the removal of disks under a volume does not change that the device is the volume.
func TestPositionOfVolumeOnRemovedDisks(t *testing.T) {
	for what, c := range map[string]struct {
		make func(s *stack)
		want []string // of DevicesBelow
	}{
		"a RAID1, one of two disks": {func(s *stack) {
			s.Mapper("dm-10", "LVM-abcrmeta0", "sda1")
			s.Mapper("dm-11", "LVM-abcrimage0", "sda1")
			s.Mapper("dm-12", "LVM-abcrmeta1")
			s.Mapper("dm-13", "LVM-abcrimage1")
			s.Pull("sdb", "dm-12", "dm-13")
			s.Mapper("dm-14", "LVM-abcmirror", "dm-10", "dm-11", "dm-12", "dm-13")
		}, []string{"sda1"}},
		"linear": {func(s *stack) { s.Mapper("dm-14", "LVM-abclinear"); s.Pull("sdb", "dm-14") }, nil},
		"on a multipath device": {func(s *stack) {
			s.Mapper("dm-5", "mpath-x")
			s.Pull("sdb", "dm-5")
			s.Mapper("dm-14", "LVM-abclinear", "dm-5")
		}, []string{"dm-5"}},
	} {
		s := newStack(t)
		c.make(s)
		where := s.reader().positions()
		if pos := where.OfVolume("dm-14"); pos.MadeOf > MadeOfNothing {
			t.Errorf("%s: %+v", what, pos)
		}
		if below, removed, err := where.DevicesBelow("dm-14"); err != nil || !slices.Equal(below, c.want) || slices.Equal(removed, []string{"sdb"}) == (what == "on a multipath device") {
			t.Errorf("%s: on %q, removed %q, %v", what, below, removed, err)
		}
	}
}

// TestPositionOfVolume: a device with a volume's UUID is that volume only if it is on disks.
func TestPositionOfVolume(t *testing.T) {
	for below, want := range map[string]bool{"sda1": true, "dm-8": true, "loop0": false, "dm-7": false} {
		s := newStack(t)
		s.loop("loop0", loopStatus{device: s.Number("dm-0")})
		s.Mapper("dm-7", "LVM-evilleg", "loop0")
		s.Mapper("dm-8", "LVM-abcleg", "sda1")
		s.Mapper("dm-9", "LVM-aavictim", below)
		if pos := s.reader().positions().OfVolume("dm-9"); (pos.MadeOf <= MadeOfNothing) != want {
			t.Errorf("on %s: %+v", below, pos)
		}
	}
}
