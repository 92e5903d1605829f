package dm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestReadMounts: names with escapes, a device node that is bound, an empty source, and lines that are damaged or long.
func TestReadMounts(t *testing.T) {
	layers := "lowerdir=" + strings.Repeat("/layer:", 20_000)
	table := filepath.Join(t.TempDir(), "mountinfo")
	must(t, os.WriteFile(table, []byte("1 0 8:1 / / rw,noatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n"+
		"2 1 0:30 / /mnt/with\\040space rw - btrfs /dev/none ro\n3 bad\n4 x 8:x / /x rw - ext4 x rw\n"+
		"5 1 0:31 / /mnt/layers rw - overlay overlay "+layers+"\n6 1 0:32 / /mnt/\\043 rw - tmpfs  rw\n"+
		"7 1 0:5 /dm-3 /var/lib/kubelet/raw ro shared:7 master:2 - devtmpfs udev rw\n8 1 8:1 /etc/hosts /etc/hosts rw - ext4 /dev/sda1 rw\n"), 0o600))
	mounts, err := ReadMounts(table)
	must(t, err)
	want := []Mount{
		{1, unix.Mkdev(8, 1), "/", "/", "rw,noatime", "ext4", "/dev/sda1", "rw,errors=remount-ro", "shared:1"},
		{2, unix.Mkdev(0, 30), "/", "/mnt/with space", "rw", "btrfs", "/dev/none", "ro", ""},
		{5, unix.Mkdev(0, 31), "/", "/mnt/layers", "rw", "overlay", "overlay", layers, ""},
		{6, unix.Mkdev(0, 32), "/", "/mnt/#", "rw", "tmpfs", "", "rw", ""},
		{7, unix.Mkdev(0, 5), "/dm-3", "/var/lib/kubelet/raw", "ro", "devtmpfs", "udev", "rw", "shared:7 master:2"},
		{8, unix.Mkdev(8, 1), "/etc/hosts", "/etc/hosts", "rw", "ext4", "/dev/sda1", "rw", ""},
	}
	if diff := cmp.Diff(want, mounts); diff != "" {
		t.Error(diff)
	}
	for i, m := range mounts {
		if m.MayBindNode() != (m.ID == 7) || (m.Device() == 0) != (i > 0 && i < 5) {
			t.Errorf("%+v: device %s", m, FormatNumber(m.Device()))
		}
	}
}

// TestSourceOfMount: the source of a file system that needs no device is its mounter's text, even if it is the path of another volume.
func TestSourceOfMount(t *testing.T) {
	for kind, want := range map[string]bool{"btrfs": true, "overlay": false, "nfs4": false, "fuse.s3fs": false, "fuse": false, "tmpfs": false, "9p": false, "ceph": false} {
		m := Mount{Number: unix.Mkdev(0, 40), Root: "/", Point: "/var/lib/kubelet/pods/x", Type: kind, Source: "/dev/dm-3"}
		if m.namesDevice() != want || !want && m.Device() != 0 {
			t.Errorf("%s: %v, %d", kind, m.namesDevice(), m.Device())
		}
	}
	for _, path := range blockDevices(t) {
		number := NumberAt(path)
		anonymous := func(kind string) uint64 { return Mount{Number: unix.Mkdev(0, 40), Type: kind, Source: path}.Device() }
		if number == 0 || anonymous("btrfs") != number || anonymous("overlay") != 0 || anonymous("nfs") != 0 {
			t.Errorf("%s: %d, %d, %d", path, number, anonymous("btrfs"), anonymous("overlay"))
		}
	}
}

// blockDevices lists the machine's block devices; a container may have none.
func blockDevices(t *testing.T) (paths []string) {
	t.Helper()
	entries, err := os.ReadDir("/dev")
	must(t, err)
	for _, e := range entries {
		if e.Type()&os.ModeDevice != 0 && e.Type()&os.ModeCharDevice == 0 {
			paths = append(paths, filepath.Join("/dev", e.Name()))
		}
	}
	return paths
}

// TestMountTableOfOldKernels: a kernel that may leave out lines while others mount has a table only when two readings agree.
func TestMountTableOfOldKernels(t *testing.T) {
	table := filepath.Join(t.TempDir(), "mountinfo")
	must(t, os.WriteFile(table, []byte("x\n"), 0o600))
	if text, err := readMountTable(table, false); err != nil || string(text) != "x\n" {
		t.Errorf("%q, %v", text, err)
	}
	const another = "/proc/sys/kernel/random/uuid" // another text each time
	if text, err := readMountTable(another, false); err == nil {
		t.Errorf("a table that is never the same twice: %q", text)
	}
	if text, err := readMountTable(another, true); err != nil || len(text) == 0 {
		t.Errorf("%q, %v", text, err)
	}
}

// TestSuperblockSpans: the spans are in the device, whatever its size, and include both ends.
func TestSuperblockSpans(t *testing.T) {
	for _, size := range []int64{0, 512, 600 << 10, 4 << 20, 64<<20 + 100, 1 << 40} {
		var last int64
		for i, s := range SuperblockSpans(lvm.Bytes(size)) {
			if s.At < 0 || s.Length <= 0 || int64(s.At+s.Length) > size || i == 0 && s.At != 0 {
				t.Errorf("of %d bytes: %+v", size, s)
			}
			last = max(last, int64(s.At+s.Length))
		}
		if last != size {
			t.Errorf("of %d bytes the last is %d", size, last)
		}
	}
}
