package accepted

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestIdentify: what the kernel counts (hosts, names) is not part of an identity, and neither is what a tenant writes.
func TestIdentify(t *testing.T) {
	const scsi, virtio, nvme = "devices/pci0000:00/0000:00:10.0/host2/target2:0:1/2:0:1:0/block/sdb", "devices/pci0000:00/0000:00:05.0/virtio2/block/vdb", "devices/pci0000:00/0000:01:00.0/nvme/nvme3/nvme3n1"
	sys := t.TempDir()
	for path, text := range map[string]string{
		scsi + "/sdb2/partition": "2\n", virtio + "/size": "8\n", virtio + "/vdb1/partition": "1\n",
		nvme + "/wwid": "eui.01\n", nvme + "/device/serial": "S2   \n",
		"devices/a/host0/target0:0:0/0:0:0:0/block/sda/device/wwid":     "t10.ATA     DISK   9\n",
		"devices/a/host0/target0:0:0/0:0:0:0/block/sda/device/vpd_pg80": "\x00\x80\x00\x04 S1\x00garbage",
		"devices/virtual/block/dm-3/dm/uuid":                            "mpath-35000\n", "devices/virtual/block/dm-5/dm/uuid": "mpath-eui.00a1\n", "devices/virtual/block/dm-6/dm/uuid": "mpath-1ATA_DISK_9\n",
		"devices/virtual/block/dm-4/dm/uuid": "CRYPT-LUKS2-x\n", "devices/virtual/block/md0/md/uuid": "01:02\n",
		"devices/virtual/block/loop0/loop/backing_file": "/srv/disk\n", "devices/virtual/block/ram0/size": "8\n",
		"devices/c/block/ubdb/serial": "(null)\n", "devices/c/block/ubdb/wwid": "eui.0000000000000000\n",
		"devices/b/block/sdc/serial": strings.Repeat("x", 900) + "\x1b[2J",
	} {
		path = filepath.Join(sys, path)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	must(t, os.MkdirAll(filepath.Join(sys, "class/block"), 0o700))
	for _, folder := range []string{scsi, scsi + "/sdb2", virtio, virtio + "/vdb1", nvme, "devices/a/host0/target0:0:0/0:0:0:0/block/sda", "devices/virtual/block/dm-3",
		"devices/virtual/block/dm-4", "devices/virtual/block/dm-5", "devices/virtual/block/dm-6", "devices/virtual/block/md0", "devices/virtual/block/loop0", "devices/virtual/block/ram0", "devices/b/block/sdc", "devices/c/block/ubdb"} {
		must(t, os.Symlink(filepath.Join(sys, folder), filepath.Join(sys, "class/block", filepath.Base(folder))))
	}
	const sdb, sda = "pci0000:00/0000:00:10.0/host*/target*:0:1/*:0:1:0", "a/host*/target*:0:0/*:0:0:0"
	for name, want := range map[string]Identity{
		"sdb2":    {Place: sdb, Partition: 2},
		"vdb":     {Place: "pci0000:00/0000:00:05.0/virtio*"},
		"vdb1":    {Place: "pci0000:00/0000:00:05.0/virtio*", Partition: 1},
		"nvme3n1": {WWID: "eui.01", Serial: "S2", Place: "pci0000:00/0000:01:00.0/nvme/nvme*/nvme*n1"},
		"sda":     {WWID: "t10.ATA DISK 9", Serial: "S1", Place: sda},
		"dm-3":    {WWID: "naa.5000"},
		"dm-5":    {WWID: "eui.00a1"},
		"dm-6":    {WWID: "dm mpath-1ATA_DISK_9"},
		"dm-4":    {WWID: "dm CRYPT-LUKS2-x"},
		"md0":     {WWID: "md 01:02"},
		"loop0":   {Place: "loop /srv/disk"},
		"ubdb":    {Place: "c"},
		"ram0":    {Place: "virtual/block/ram0"},
		"sdc":     {Serial: strings.Repeat("x", longest), Place: "b"},
	} {
		got, err := Identify(sys, name)
		if err != nil || got != want {
			t.Errorf("%s: %+v, want %+v (%v)", name, got, want, err)
		}
		if err := (Entry{PV: pv, Device: "/dev/" + name, Identity: got}).check(); err != nil {
			t.Errorf("%s cannot be recorded: %v", name, err)
		}
	}
	if _, err := Identify(sys, "absent"); err == nil {
		t.Error("an absent device has an identity")
	}
}
