package lvm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRemoteDisk: a disk that other hosts may have as well is told from one in the machine.
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
		n := newTestNode(t)
		plugAt(t, n, folder, "8:16")
		v := survey{sys: n.sys, proc: n.proc, dev: n.dev}
		d, err := v.look(blockDevice{name: filepath.Base(folder), path: "/dev/x", size: GiB})
		must(t, err)
		if d.remote != remote {
			t.Errorf("%s: remote is %v", folder, d.remote)
		}
		if why := d.unfit(false); strings.Contains(why, "other hosts") != remote {
			t.Errorf("%s: %q", folder, why)
		}
		if why := d.unfit(true); why != "" {
			t.Errorf("%s, named: %q", folder, why)
		}
	}
}

// TestLook: what the kernel tells of a disk goes for its partitions as well.
func TestLook(t *testing.T) {
	n := newTestNode(t)
	const folder = "devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1"
	plugAt(t, n, folder, "259:0")
	plugAt(t, n, folder+"/nvme0n1p1", "259:1")
	n.attribute(t, "nvme0n1", "queue/logical_block_size", "4096\n")
	n.attribute(t, "nvme0n1", "queue/rotational", "1\n")
	n.attribute(t, "nvme0n1", "device/model", "FAST  DISK 9 \n")
	n.attribute(t, "nvme0n1", "queue/zoned", "host-managed\n")
	for _, name := range []string{"nvme0n1", "nvme0n1p1"} {
		d, err := survey{sys: n.sys, proc: n.proc, dev: n.dev}.look(blockDevice{name: name, path: "/dev/" + name, size: GiB})
		if must(t, err); d.block != 4*KiB || !d.rotational || d.model != "FAST DISK 9" || !d.zoned || !d.virtual || d.readOnly {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// TestBehindLoop: a disk that the kubelet has handed to a pod as it is has no holder, but a loop device; its disk is not
// free either if it is a partition.
func TestBehindLoop(t *testing.T) {
	n := newTestNode(t)
	plugAt(t, n, "devices/pci0000:00/block/sdb", "8:16")
	plugAt(t, n, "devices/pci0000:00/block/sdc", "8:32")
	plugAt(t, n, "devices/pci0000:00/block/sdc/sdc1", "8:33")
	must(t, os.WriteFile(filepath.Join(n.sys, "devices/pci0000:00/block/sdc/sdc1/partition"), []byte("1\n"), 0o600))
	must(t, os.MkdirAll(filepath.Join(n.proc, "self"), 0o755))
	must(t, os.WriteFile(filepath.Join(n.proc, "self/mountinfo"), nil, 0o600))
	backing := map[string]uint64{"loop0": unix.Mkdev(8, 16), "loop1": unix.Mkdev(8, 33), "loop2": 0}
	for loop := range backing {
		n.attribute(t, loop, "loop/backing_file", "/somewhere/that/only/the/kubelet/sees\n")
	}
	n.attribute(t, "loop3", "loop/backing_file", "/detached/meanwhile\n")
	n.attribute(t, "loop4", "ro", "0\n") // nothing is attached
	v := survey{sys: n.sys, proc: n.proc, dev: n.dev, backing: func(loop string) (uint64, error) {
		number, is := backing[filepath.Base(loop)]
		if !is {
			return 0, unix.ENXIO
		}
		return number, nil
	}}
	uses, err := v.uses()
	must(t, err)
	for device, words := range map[string]string{"sdb": "is behind loop0", "sdc1": "is behind loop1", "sdc": "carries what is behind loop1"} {
		if !strings.Contains(fmt.Sprint(uses[device]), words) {
			t.Errorf("%s: %q", device, uses[device])
		}
	}
	if len(uses) != 3 {
		t.Errorf("%q", uses)
	}
	v.backing = func(string) (uint64, error) { return 0, unix.EACCES }
	if _, err := v.uses(); err == nil {
		t.Error("a loop device that cannot be asked does not matter")
	}
}

// TestUnfit: each thing that the kernel knows against a device, in the order in which it matters.
func TestUnfit(t *testing.T) {
	whole := disk{blockDevice: blockDevice{path: "/dev/sdb", size: GiB}}
	for words, change := range map[string]func(*disk){
		"belongs to volume group vg": func(d *disk) { d.group, d.uses = "vg", []string{"is swap space"} },
		"it carries what":            func(d *disk) { d.uses, d.parts = []string{"carries what is mounted at /"}, []string{"sdb1"} },
		"a part of dm-3, md0":        func(d *disk) { d.holders = []string{"dm-3", "md0"} },
		"partitions (sdb1)":          func(d *disk) { d.parts = []string{"sdb1"} },
		"does not answer":            func(d *disk) { d.silent = true },
		"read-only":                  func(d *disk) { d.readOnly = true },
		"it is zoned":                func(d *disk) { d.zoned = true },
		"smaller than 16 MiB":        func(d *disk) { d.size = 16*MiB - 1 },
	} {
		d := whole
		change(&d)
		for _, named := range []bool{true, false} {
			if why := d.unfit(named); !strings.Contains(why, words) {
				t.Errorf("%s: %q", words, why)
			}
		}
	}
	for words, change := range map[string]func(*disk){
		"it is a partition": func(d *disk) { d.partition = true },
		"it is removable":   func(d *disk) { d.removable = true },
		"not a disk":        func(d *disk) { d.virtual = true },
	} {
		d := whole
		change(&d)
		if why := d.unfit(false); !strings.Contains(why, words) {
			t.Errorf("%s: %q", words, why)
		}
		if why := d.unfit(true); why != "" {
			t.Errorf("%s, named: %q", words, why)
		}
	}
	shared := whole
	shared.name, shared.virtual = "nvme0n1", true
	if why := shared.unfit(false); !strings.Contains(why, "an NVMe disk that can be reached over several paths") {
		t.Errorf("an NVMe disk with several ports: %q", why)
	}
	if why := whole.unfit(false); why != "" {
		t.Error(why)
	}
}

// TestCompareNames orders devices as people do.
func TestCompareNames(t *testing.T) {
	order := []string{"/dev/sda", "/dev/sda2", "/dev/sda10", "/dev/sdb"}
	for i := range order[1:] {
		if compareNames(order[i], order[i+1]) >= 0 || compareNames(order[i+1], order[i]) <= 0 {
			t.Errorf("%s after %s", order[i], order[i+1])
		}
	}
}

// TestReadMounts: mounts by device, btrfs by its source, and names with spaces.
func TestReadMounts(t *testing.T) {
	text := "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n" +
		"2 1 8:1 /etc/hosts /etc/hosts rw shared:1 - ext4 /dev/sda1 rw\n" +
		"3 1 0:30 / /mnt/with\\040space rw - btrfs /dev/none rw\n" +
		"4 1 7:0 / /mnt/with\\040space rw - xfs /dev/loop0 rw\n5 bad\n"
	file := filepath.Join(t.TempDir(), "mountinfo")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	mounts, err := readMounts(file)
	must(t, err)
	if got := mounts["8:1"]; len(got) != 2 || placeOf(got) != "/" {
		t.Errorf("%q", mounts)
	}
	if got := mounts["7:0"]; len(got) != 1 || got[0] != "/mnt/with space" || len(mounts) != 2 {
		t.Errorf("%q", mounts)
	}
}
