package ondisk

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// TestRemoteDisk: a disk that other hosts may use is distinguished from a local one.
func TestRemoteDisk(t *testing.T) {
	for folder, remote := range map[string]bool{
		"devices/platform/host3/session1/target3:0:0/3:0:0:0/block/sdb":                                     true,
		"devices/platform/host3/session1/target3:0:0/3:0:0:0/block/sdb/sdb1":                                true,
		"devices/pci0000:00/0000:00:03.0/0000:05:00.0/host7/rport-7:0-2/target7:0:0/7:0:0:1/block/sdc":      true,
		"devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda":                          false,
		"devices/pci0000:00/0000:00:1d.0/0000:03:00.0/nvme/nvme0/nvme0n1":                                   false,
		"devices/pci0000:00/0000:00:02.0/host1/port-1:0/end_device-1:0/target1:0:0/1:0:0:0/block/sdd":       false,
		"devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/session/host2/target2:0:0/2:0:0:0/block/sdee": false,
	} {
		n := fixture.NewTestNode(t)
		fixture.PlugAt(t, n, folder, "8:16")
		v := DeviceScanner{Positions: disksOf(n).positions()}
		d, err := v.inspect(BlockDevice{Name: filepath.Base(folder), Path: "/dev/x", Size: lvm.GiB})
		fixture.Must(t, err)
		if d.remote != remote {
			t.Errorf("%s: remote is %v", folder, d.remote)
		}
		if why := d.IneligibleReason(false); strings.Contains(why, "other hosts") != remote {
			t.Errorf("%s: %q", folder, why)
		}
		if why := d.IneligibleReason(true); why != "" {
			t.Errorf("%s, named: %q", folder, why)
		}
	}
}

// TestDiskProperties: the kernel's properties of a disk apply to its partitions.
func TestDiskProperties(t *testing.T) {
	n := fixture.NewTestNode(t)
	const folder = "devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1"
	fixture.PlugAt(t, n, folder, "259:0")
	fixture.PlugAt(t, n, folder+"/nvme0n1p1", "259:1")
	n.Attribute(t, "nvme0n1", "queue/logical_block_size", "4096\n")
	n.Attribute(t, "nvme0n1", "queue/rotational", "1\n")
	n.Attribute(t, "nvme0n1", "device/model", "FAST  DISK 9 \n")
	n.Attribute(t, "nvme0n1", "queue/zoned", "host-managed\n")
	n.Attribute(t, "nvme0n1p1", "partition", "1\n")
	for name, kind := range map[string]string{"nvme0n1": "disk", "nvme0n1p1": "partition"} {
		n.Attribute(t, name, "uevent", "MAJOR=259\nMINOR=0\nDEVNAME="+name+"\nDEVTYPE="+kind+"\n")
		n.Attribute(t, name, "size", "2097152\n")
	}
	found, err := new(scanner).scan(t.Context(), n.Sys, n.Proc, n.Dev)
	fixture.Must(t, err)
	if len(found.list) != 2 {
		t.Fatalf("%+v", found.list)
	}
	for _, b := range found.list {
		name := b.Name
		d, err := DeviceScanner{Positions: disksOf(n).positions()}.inspect(b)
		if fixture.Must(t, err); d.Block != 4*lvm.KiB || !d.Rotational || d.Model != "FAST DISK 9" || !d.zoned || !d.virtual || d.readOnly {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// TestDiskUnderLoopDevice: a disk that the kubelet gave to a pod as a raw block volume has no holder, but a loop device. If it is a
// partition, its disk is in use too.
func TestDiskUnderLoopDevice(t *testing.T) {
	s := newStack(t)
	s.mounts()
	s.Make("devices/pci0000:00/host1/block/sdb", 8)
	s.loop("loop0", loopStatus{device: s.Number("sdb")})
	s.loop("loop1", loopStatus{device: s.Number("sda1")})
	s.loop("loop2", loopStatus{fileSystem: s.Number("sda1")})
	s.Virtual("loop3", majorLoop)
	s.Attribute(t, "loop3", "loop/backing_file", "/detached/meanwhile\n")
	s.Virtual("loop4", majorLoop) // detached
	v := DeviceScanner{Positions: s.reader().positions()}
	uses, err := v.uses()
	fixture.Must(t, err)
	for device, words := range map[string]string{"sdb": "is the backing device of loop0", "sda1": "is the backing device of loop1", "sda": "carries the backing device of loop1"} {
		if !strings.Contains(fmt.Sprint(uses[device]), words) {
			t.Errorf("%s: %q", device, uses[device])
		}
	}
	if len(uses) != 3 {
		t.Errorf("%q", uses)
	}
	v.backing = func(int) (loopStatus, error) { return loopStatus{}, unix.EACCES }
	if _, err := v.uses(); err == nil {
		t.Error("a loop device that cannot be asked does not matter")
	}
}

// TestUnresponsiveForeignDisk: a disk of another driver that does not answer is no disk of this node's groups, and delays no scan for new ones either.
func TestUnresponsiveForeignDisk(t *testing.T) {
	s, r := newStack(t), recordOf(t, "ebs.csi.aws.com")
	s.mounts()
	s.readOf(r) // the first use
	s.attachForeign()
	reader, read := s.reader(), s.reader().prober()
	answers := make(chan struct{})
	defer close(answers)
	reader.Accepted, reader.Patience = r, 50*time.Millisecond
	reader.probe = func(b BlockDevice) probe {
		if b.Name == "nvme2n1" {
			<-answers
		}
		return read.probe(b, probe{})
	}
	state, err := reader.Read(t.Context())
	if fixture.Must(t, err); len(state.Unresponsive) > 0 {
		t.Errorf("%+v", state)
	}
	disks, err := DeviceScanner{Positions: reader.positions(), Reader: reader}.Disks(t.Context(), state)
	fixture.Must(t, err)
	for _, d := range disks {
		if silent := strings.Contains(d.IneligibleReason(true), "it is unresponsive"); silent != (d.Name == "nvme2n1") {
			t.Errorf("%s: %q", d.Name, d.IneligibleReason(true))
		}
	}
	if len(disks) < 2 {
		t.Errorf("%+v", disks)
	}
}

// TestIneligibleReasons: each reason that makes a device ineligible, in the order of their importance.
func TestIneligibleReasons(t *testing.T) {
	whole := Disk{BlockDevice: BlockDevice{Path: "/dev/sdb", Size: lvm.GiB}}
	for words, change := range map[string]func(*Disk){
		"belongs to volume group vg": func(d *Disk) { d.Group, d.uses = "vg", []string{"is swap space"} },
		"it carries what":            func(d *Disk) { d.uses, d.parts = []string{"carries what is mounted at /"}, []string{"sdb1"} },
		"a part of dm-3, md0":        func(d *Disk) { d.holders = []string{"dm-3", "md0"} },
		"partitions (sdb1)":          func(d *Disk) { d.parts = []string{"sdb1"} },
		"it is unresponsive":         func(d *Disk) { d.unresponsive = true },
		"read-only":                  func(d *Disk) { d.readOnly = true },
		"it is zoned":                func(d *Disk) { d.zoned = true },
		"smaller than 16 MiB":        func(d *Disk) { d.Size = 16*lvm.MiB - 1 },
	} {
		d := whole
		change(&d)
		for _, named := range []bool{true, false} {
			if why := d.IneligibleReason(named); !strings.Contains(why, words) {
				t.Errorf("%s: %q", words, why)
			}
		}
	}
	for words, change := range map[string]func(*Disk){
		"it is a partition": func(d *Disk) { d.partition = true },
		"it is removable":   func(d *Disk) { d.removable = true },
		"not a disk":        func(d *Disk) { d.virtual = true },
	} {
		d := whole
		change(&d)
		if why := d.IneligibleReason(false); !strings.Contains(why, words) {
			t.Errorf("%s: %q", words, why)
		}
		if why := d.IneligibleReason(true); why != "" {
			t.Errorf("%s, named: %q", words, why)
		}
	}
	shared := whole
	shared.Name, shared.virtual = "nvme0n1", true
	if why := shared.IneligibleReason(false); !strings.Contains(why, "an NVMe disk that can be reached over several paths") {
		t.Errorf("an NVMe disk with several ports: %q", why)
	}
	if why := whole.IneligibleReason(false); why != "" {
		t.Error(why)
	}
}

// TestCompareNames: devices are in natural order.
func TestCompareNames(t *testing.T) {
	order := []string{"/dev/sda", "/dev/sda2", "/dev/sda10", "/dev/sdb"}
	for i := range order[1:] {
		if compareNames(order[i], order[i+1]) >= 0 || compareNames(order[i+1], order[i]) <= 0 {
			t.Errorf("%s after %s", order[i], order[i+1])
		}
	}
}

// TestUsesOfMounts: a disk that is mounted in several places is named with the shortest one.
func TestUsesOfMounts(t *testing.T) {
	n := fixture.NewTestNode(t)
	fixture.PlugAt(t, n, "devices/pci0000:00/block/sda", "8:1")
	fixture.Must(t, os.MkdirAll(filepath.Join(n.Proc, "self"), 0o755))
	fixture.Must(t, os.WriteFile(filepath.Join(n.Proc, "self/mountinfo"), []byte("2 1 8:1 /etc/hosts /etc/hosts rw shared:1 - ext4 /dev/sda rw\n1 0 8:1 / / rw - ext4 /dev/sda rw\n"), 0o600))
	uses, err := DeviceScanner{Positions: disksOf(n).positions()}.uses()
	if fixture.Must(t, err); !slices.Equal(uses["sda"], []string{"is mounted at /"}) || len(uses) != 1 {
		t.Errorf("%q", uses)
	}
}
