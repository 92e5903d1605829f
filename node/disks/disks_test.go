package disks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
	"github.com/nodelvm/nodelvm/report"
)

// tree writes files below a folder: text, or, with "-> ", a link.
func tree(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for path, content := range files {
		path = filepath.Join(root, path)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		var err error
		if target, link := strings.CutPrefix(content, "-> "); link {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(content), 0o600)
		}
		must(t, err)
	}
}

const scsi = "sys/devices/pci0000:00/ata1/block/sda"

// machine is a node with a SCSI disk that has a partition, an NVMe disk, a virtual disk, a software RAID, and a multipath device.
func machine(t *testing.T) (root string, s system) {
	root = t.TempDir()
	tree(t, root, map[string]string{
		scsi + "/size": "2000\n", scsi + "/device/model": "DISK  9000 \n", scsi + "/device/vpd_pg80": "\x00\x80\x00\x06 S1-23garbage",
		scsi + "/device/wwid": "naa.5000\n", scsi + "/device/enclosure_device:Slot 07/x": "", scsi + "/sda1/partition": "1\n", scsi + "/sda1/size": "100\n",
		"sys/class/block/sda": "-> ../../devices/pci0000:00/ata1/block/sda", "sys/class/block/sda1": "-> ../../devices/pci0000:00/ata1/block/sda/sda1",
		"sys/class/block/nvme0n1/device/model": "FAST 1T", "sys/class/block/nvme0n1/device/serial": "S2   ", "sys/class/block/nvme0n1/wwid": "eui.01",
		"sys/class/block/vda/device/serial": "(null)\n", "sys/class/block/vda/serial": "\x1b[2Jvirt\xff" + strings.Repeat("x", 200), "sys/class/block/md0/md/level": "raid1\n",
		"sys/class/block/dm-3/dm/uuid": "mpath-36000\n", "sys/class/block/dm-3/slaves/sda": "",
		"sys/class/block/dm-3/slaves/removed":      "-> ../../../../devices/pci0000:00/ata2/block/removed",
		"dev/disk/by-path/pci-0000:01:00.0-nvme-1": "-> ../../nvme0n1", "dev/disk/by-path/pci-0000:01:00.0-nvme-1-part1": "-> ../../nvme0n1p1",
	})
	for _, name := range []string{"sda", "sda1", "nvme0n1", "vda", "md0", "dm-3"} {
		tree(t, root, map[string]string{"dev/" + name: ""})
	}
	return root, system{sys: filepath.Join(root, "sys"), dev: filepath.Join(root, "dev")}
}

func TestIdentify(t *testing.T) {
	root, s := machine(t)
	disk := report.Disk{Model: "DISK 9000", Serial: "S1-23", WWN: "naa.5000", Slot: "Slot 07", Size: 1024000}
	for name, want := range map[string]report.Disk{
		"sda": disk, "sda1": disk, "dm-3": disk,
		"nvme0n1": {Model: "FAST 1T", Serial: "S2", WWN: "eui.01", Slot: "pci-0000:01:00.0-nvme-1"},
		"vda":     {Serial: "[2Jvirt" + strings.Repeat("x", longest-7)},
		"md0":     {Model: "software RAID raid1"},
		"absent":  {},
	} {
		want.Path = filepath.Join(root, "dev", name)[:min(longest, len(filepath.Join(root, "dev", name)))]
		if got := s.identify(filepath.Join(root, "dev", name)); got != want {
			t.Errorf("%s is %+v, want %+v", name, got, want)
		}
	}
}

const (
	pvA, pvB     = "PVAAAA-0000-0000-0000-0000-0000-000001", "PVBBBB-0000-0000-0000-0000-0000-000002"
	groupA       = lvm.VGUUID("VGAAAA-0000-0000-0000-0000-0000-000001")
	anotherGroup = lvm.VGUUID("VGBBBB-0000-0000-0000-0000-0000-000002")
)

func inv(group lvm.VGUUID, pvs ...report.PV) report.Inventory {
	return report.Inventory{Groups: []report.Group{{Name: "vg-data", UUID: group, PVs: pvs}}}
}

// registry is one over the machine's disks, with a clock that the test turns.
func registry(t *testing.T, file string, s system, at *time.Time) *Registry {
	t.Helper()
	r, err := New(file)
	must(t, err)
	r.system, r.now = s, func() time.Time { return *at }
	return r
}

// TestLostDisk: what a disk was is known after it vanished, also to the next process, alone or with its group.
func TestLostDisk(t *testing.T) {
	root, s := machine(t)
	file, at := filepath.Join(t.TempDir(), "disks.json"), time.Unix(1_000_000, 0)
	a, b := report.PV{UUID: pvA, Device: filepath.Join(root, "dev/sda1")}, report.PV{UUID: pvB, Device: filepath.Join(root, "dev/nvme0n1")}
	r := registry(t, file, s, &at)
	r.Observe(inv(groupA, a, b))
	must(t, r.Save())
	seen := at
	at = at.Add(time.Hour)
	r = registry(t, file, s, &at)
	dead := report.PV{UUID: pvA, Missing: true}
	now := inv(groupA, dead, b)
	r.Observe(now)
	r.AddTo(&now)
	if d := now.Groups[0].PVs[0].Disk; d == nil || d.Serial != "S1-23" || d.Slot != "Slot 07" || !d.Seen.Equal(seen) {
		t.Errorf("the missing disk is %+v", d)
	}
	if d := now.Groups[0].PVs[1].Disk; d == nil || d.Model != "FAST 1T" || !d.Seen.Equal(at) || len(now.LostDisks) != 0 {
		t.Errorf("the other disk is %+v, and lost are %+v", d, now.LostDisks)
	}
	if text := r.Describe("PV " + pvA + " is missing"); !strings.Contains(text, pvA+" (DISK 9000, serial S1-23, last ") || !strings.Contains(text, "slot Slot 07) is missing") {
		t.Errorf("the message is %q", text)
	}
	gone := inv(anotherGroup)
	r.Observe(gone)
	r.AddTo(&gone)
	if lost := gone.LostDisks; len(lost) != 2 || lost[0].PV != pvA || lost[0].Group != "vg-data" || lost[1].Serial != "S2" {
		t.Errorf("with the group, lost are %+v", lost)
	}
	at = at.Add(forgetAfter + time.Hour)
	r.Observe(gone)
	if len(r.records) != 0 {
		t.Errorf("for ever the record has %+v", r.records)
	}
}

// TestRemovedDisk: a disk that an admin took out of its group is not lost.
func TestRemovedDisk(t *testing.T) {
	root, s := machine(t)
	at := time.Unix(1_000_000, 0)
	r := registry(t, "", s, &at)
	a, b := report.PV{UUID: pvA, Device: filepath.Join(root, "dev/sda1")}, report.PV{UUID: pvB, Device: filepath.Join(root, "dev/nvme0n1")}
	r.Observe(inv(groupA, a, b))
	now := inv(groupA, b)
	r.Observe(now)
	r.AddTo(&now)
	if len(now.LostDisks) != 0 || len(r.records) != 1 {
		t.Errorf("lost are %+v, recorded %+v", now.LostDisks, r.records)
	}
}

// TestDiskIsReadOnce: a disk is asked again only when its physical volume has another device.
func TestDiskIsReadOnce(t *testing.T) {
	root, s := machine(t)
	at := time.Unix(1_000_000, 0)
	r := registry(t, "", s, &at)
	a := report.PV{UUID: pvA, Device: filepath.Join(root, "dev/sda1")}
	r.Observe(inv(groupA, a))
	tree(t, root, map[string]string{scsi + "/device/model": "CHANGED"})
	r.Observe(inv(groupA, a))
	if got := r.records[pvA].Model; got != "DISK 9000" {
		t.Errorf("the disk was asked again: %q", got)
	}
	a.Device = filepath.Join(root, "dev/sda")
	r.Observe(inv(groupA, a))
	if got := r.records[pvA].Model; got != "CHANGED" {
		t.Errorf("at another path the disk is %q", got)
	}
}

// TestFile: the file changes only with the disks or after an hour, and an unreadable one is replaced.
func TestFile(t *testing.T) {
	file, at := filepath.Join(t.TempDir(), "disks.json"), time.Unix(1_000_000, 0).UTC()
	disk := report.LostDisk{PV: pvA, Group: "vg", GroupUUID: groupA, Disk: report.Disk{Path: "/dev/sda", Seen: at}}
	write := func() os.FileInfo {
		t.Helper()
		must(t, store(file, []report.LostDisk{disk}))
		info, err := os.Stat(file)
		must(t, err)
		return info
	}
	first := write()
	disk.Seen = at.Add(fileAge)
	if !os.SameFile(first, write()) {
		t.Error("a newer time alone was written")
	}
	disk.Seen = at.Add(fileAge + time.Second)
	second := write()
	disk.Serial = "S9"
	third := write()
	if os.SameFile(first, second) || os.SameFile(second, third) {
		t.Error("a change was not written")
	}
	must(t, os.WriteFile(file, []byte(`{"version":1,"disks":[{`), 0o600))
	r, err := New(file)
	if err == nil || !strings.Contains(err.Error(), file) || len(r.records) != 0 {
		t.Errorf("of a torn file: %v, %+v", err, r.records)
	}
	must(t, os.WriteFile(file, []byte(`{"version":99,"disks":[]}`), 0o600))
	if _, err := New(file); err == nil || !strings.Contains(err.Error(), "format version 99") || strings.Contains(err.Error(), "%!") {
		t.Errorf("of another version: %v", err)
	}
	write()
	if read, err := load(file); err != nil || read[pvA] != disk {
		t.Errorf("after that: %+v, %v", read, err)
	}
	left, err := os.ReadDir(filepath.Dir(file))
	if err != nil || len(left) != 1 {
		t.Errorf("files left: %v, %v", left, err)
	}
}

var must = check.Must
