//go:build innode

package innode

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/report"
)

// TestHardwareStacked: the disk of a group is made of two, one of which is pulled while a pod writes. The pod goes on, and the capacity and the
// record of the disk stay as they are.
func TestHardwareStacked(t *testing.T) {
	t.Run("multipath", func(t *testing.T) {
		const serial = "path-1" // of both paths
		paths := disksOf(t, serial)
		if len(paths) != 2 {
			t.Fatalf("the paths to the disk are %q", paths)
		}
		device := newMultipath(t, paths)
		stacked(t, stackedCase{
			name: "one of two paths (dm-multipath)", group: "vg-paths", device: device, pulled: "path-2",
			gone: func() bool { return len(disksOf(t, serial)) == 1 },
			// As multipathd does: the path that is back has another name.
			back: func() bool {
				now := disksOf(t, serial)
				return len(now) == 2 && setMultipath(t, now) == nil
			},
			then: "path-1",
		})
	})
	t.Run("software RAID", func(t *testing.T) {
		device := newSoftwareRAID(t, []string{diskOf(t, "nvme-a"), diskOf(t, "nvme-b")})
		stacked(t, stackedCase{
			name: "one of two disks of a software RAID (md)", group: "vg-md", device: device, pulled: "nvme-a",
			gone: func() bool { return diskOf(t, "nvme-a") == "" }, back: func() bool { return diskOf(t, "nvme-a") != "" },
		})
	})
}

// stackedCase is a group on a device that is made of two disks, or of two paths to a disk.
type stackedCase struct {
	name, group, device string
	pulled              string      // by its name in the lab
	gone, back          func() bool // the kernel has removed it; it has another one, which the device uses
	then                string      // what is pulled after the return; "": nothing
}

func stacked(t *testing.T, s stackedCase) {
	groupOn(t, s.group, s.device)
	c := connect(t)
	request := onDisks(s.group, s.group, 96*mebibyte)
	pod := c.opened(t, c.create(t, request), mountCapability("ext4"), nil)
	must(t, writes(pod.file("text"), "before"))
	settled(t)
	whole := c.capacity(t, request.Parameters)

	act(t, "pull", s.pulled)
	eventually(t, time.Minute, s.pulled+" is gone", s.gone)
	s.goesOn(t, c, pod, whole)
	act(t, "return", s.pulled)
	eventually(t, time.Minute, s.pulled+" is back", s.back)
	if s.then != "" {
		act(t, "pull", s.then)
		eventually(t, time.Minute, s.then+" is gone", s.gone)
		s.goesOn(t, c, pod, whole)
		act(t, "return", s.then)
		eventually(t, time.Minute, s.then+" is back", s.back)
	}
	row{Case: "pulled: " + s.name, Pod: "goes on", Capacity: mib(whole) + ", also meanwhile"}.print(t, nil)
}

// goesOn checks the pod, a new volume, the capacity and what the driver reports.
func (s stackedCase) goesOn(t *testing.T, c client, pod opened, whole int64) {
	t.Helper()
	must(t, writes(pod.file("text"), "meanwhile"))
	must(t, readsDisk(t, sourceOf(t, pod.target)))
	more := c.create(t, onDisks(s.group+"-more", s.group, 16*mebibyte))
	must(t, readsDisk(t, c.activeDevice(t, more)))
	c.remove(t, more.GetVolumeId())
	if now := c.capacity(t, onDisks("", s.group, 0).Parameters); now != whole {
		t.Errorf("the capacity was %s, and is %s", mib(whole), mib(now))
	}
	page := look(t)
	if slices.ContainsFunc(page.LostDisks, func(d report.LostDisk) bool { return string(d.Group) == s.group }) {
		t.Errorf("the disk is called lost: %+v", page.LostDisks)
	}
	for _, condition := range page.Conditions {
		if string(condition.Group) == s.group {
			t.Errorf("a condition: %+v", condition)
		}
	}
}

// multipathName is the name of the multipath device in device-mapper.
const multipathName = "innode-paths"

// newMultipath creates a multipath device over the paths, as multipathd does.
func newMultipath(t *testing.T, paths []string) string {
	t.Helper()
	must(t, command("modprobe", "-a", "dm-multipath", "dm-round-robin"))
	wwid, err := os.ReadFile(filepath.Join("/sys/class/block", filepath.Base(paths[0]), "device/wwid"))
	must(t, err)
	number, is := strings.CutPrefix(strings.TrimSpace(string(wwid)), "naa.")
	if !is {
		t.Fatalf("the disk's WWID is %q", wwid)
	}
	must(t, command("dmsetup", "create", multipathName, "--uuid", "mpath-3"+number, "--table", multipathTable(t, paths)))
	t.Cleanup(func() {
		err := command("dmsetup", "remove", "--retry", multipathName)
		for _, path := range disksOf(t, "path-1") {
			err = cmp.Or(err, blankStart(path))
		}
		must(t, err)
	})
	return "/dev/mapper/" + multipathName
}

func multipathTable(t *testing.T, paths []string) string {
	t.Helper()
	table := fmt.Sprintf("0 %s multipath 0 0 1 1 round-robin 0 %d 1", output(t, "blockdev", "--getsz", paths[0]), len(paths))
	for _, path := range paths {
		table += " " + path + " 1000"
	}
	return table
}

// setMultipath gives the multipath device these paths.
func setMultipath(t *testing.T, paths []string) error {
	t.Helper()
	if err := command("dmsetup", "reload", multipathName, "--table", multipathTable(t, paths)); err != nil {
		return err
	}
	return command("dmsetup", "resume", multipathName)
}

// newSoftwareRAID creates a RAID1 array (md) of two disks in step. Its data begins after the disks' first MiB, and it has no metadata, so the
// kernel alone makes it: a node has no mdadm.
func newSoftwareRAID(t *testing.T, disks []string) string {
	t.Helper()
	const name, component = "md127", 900 << 10 // KiB
	must(t, command("modprobe", "raid1"))
	set := func(file string, value any) {
		t.Helper()
		must(t, os.WriteFile(file, []byte(fmt.Sprint(value)), 0o200))
	}
	set("/sys/module/md_mod/parameters/new_array", name)
	array := filepath.Join("/sys/class/block", name, "md")
	t.Cleanup(func() {
		set(filepath.Join(array, "array_state"), "clear")
		eventually(t, time.Minute, "the kernel removes "+name, func() bool {
			_, err := os.Stat(array)
			return os.IsNotExist(err)
		})
		for _, serial := range []string{"nvme-a", "nvme-b"} {
			must(t, blankStart(diskOf(t, serial)))
		}
	})
	set(filepath.Join(array, "level"), "raid1")
	set(filepath.Join(array, "raid_disks"), len(disks))
	for i, disk := range disks {
		member := filepath.Base(disk)
		number, err := os.ReadFile(filepath.Join("/sys/class/block", member, "dev"))
		must(t, err)
		set(filepath.Join(array, "new_dev"), strings.TrimSpace(string(number)))
		set(filepath.Join(array, "dev-"+member, "offset"), 2048) // sectors of 512 bytes
		set(filepath.Join(array, "dev-"+member, "slot"), i)
	}
	set(filepath.Join(array, "component_size"), component)
	set(filepath.Join(array, "resync_start"), "none")
	set(filepath.Join(array, "array_state"), "active")
	return "/dev/" + name
}
