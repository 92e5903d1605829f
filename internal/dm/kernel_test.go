package dm

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

var must = check.Must

func testKernel(t *testing.T) Kernel {
	t.Helper()
	k := Kernel{Sys: t.TempDir(), Proc: t.TempDir(), Dev: t.TempDir()}
	for path, content := range map[string]string{
		"class/block/dm-0/dm/uuid":      "LVM-aaaa\n",
		"class/block/dm-0/dm/suspended": "0\n",
		"class/block/dm-7/dm/uuid":      "LVM-aaaa-real\n",
		"class/block/dm-7/dm/suspended": "1\n",
		"class/block/dm-1/dm/uuid":      "CRYPT-LUKS2-b\n",
		"class/block/dm-2/size":         "0\n", // being removed
		"class/block/sda/size":          "9\n",
	} {
		path = filepath.Join(k.Sys, path)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return k
}

func TestKernelDevices(t *testing.T) {
	k := testKernel(t)
	devices, err := k.Devices()
	must(t, err)
	paths := map[string]string{}
	for _, d := range devices {
		paths[d.UUID] = d.Path
	}
	if diff := cmp.Diff(map[string]string{"LVM-aaaa": k.Dev + "/dm-0", "LVM-aaaa-real": k.Dev + "/dm-7"}, paths); diff != "" {
		t.Error(diff)
	}
	for path, want := range map[string]bool{"/dev/dm-0": false, "/dev/dm-7": true} {
		if is, err := k.IsSuspended(path); err != nil || is != want {
			t.Errorf("%s suspended: %v, %v", path, is, err)
		}
	}
	if _, err := k.IsSuspended("/dev/dm-9"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a device that is not there: %v", err)
	}
	if path, active, err := k.Device("LVM-aaaa"); err != nil || !active || path != k.Dev+"/dm-0" {
		t.Errorf("%q, %v, %v", path, active, err)
	}
	if path, active, err := k.Device("LVM-aaa"); err != nil || active || path != "" {
		t.Errorf("a prefix of its UUID: %q, %v, %v", path, active, err)
	}
	must(t, os.RemoveAll(filepath.Join(k.Sys, "class")))
	if _, _, err := k.Device("LVM-aaaa"); err == nil {
		t.Error("without sysfs a volume is called inactive")
	}
}

func TestKernelReady(t *testing.T) {
	k := testKernel(t)
	if err := k.Ready(); err == nil {
		t.Error("ready without device-mapper")
	}
	must(t, os.MkdirAll(filepath.Join(k.Sys, "class/misc/device-mapper"), 0o755))
	must(t, k.Ready())
	must(t, k.Load(t.Context()))
}

func TestKernelSync(t *testing.T) {
	k := testKernel(t)
	disk := filepath.Join(k.Dev, "sda")
	must(t, os.WriteFile(disk, nil, 0o400))
	must(t, k.Sync([]string{disk}))
	if err := k.Sync([]string{disk, disk + "1"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a disk that is not there: %v", err)
	}
}

func TestKernelWrites(t *testing.T) {
	k := testKernel(t)
	stat := filepath.Join(k.Sys, "class/block/dm-3/stat")
	must(t, os.MkdirAll(filepath.Dir(stat), 0o755))
	for text, want := range map[string][2]int64{
		"   26 0 208 0  5  1  48 0 0 0 0 0 0 0 0 0 0\n": {5, 48 * 512},
		"1 2 3 4 5 6":          {-1},
		"1 2 3 4 -5x 6 7 8":    {-1},
		"1 2 3 4 5 6 words 8 ": {-1},
	} {
		must(t, os.WriteFile(stat, []byte(text), 0o600))
		count, size, err := k.Writes("/dev/dm-3")
		if bad := want[0] < 0; (err != nil) != bad || !bad && (count != want[0] || int64(size) != want[1]) {
			t.Errorf("%q: %d writes, %s, %v", text, count, size, err)
		}
	}
	must(t, os.WriteFile(stat, []byte("26 0 208 0 0 0 0 0\n"), 0o600))
	iostats := filepath.Join(filepath.Dir(stat), "queue/iostats")
	must(t, os.MkdirAll(filepath.Dir(iostats), 0o755))
	for text, want := range map[string]int64{"1\n": 0, "0\n": math.MaxInt64} {
		must(t, os.WriteFile(iostats, []byte(text), 0o600))
		if count, _, err := k.Writes("/dev/dm-3"); err != nil || count != want {
			t.Errorf("with iostats %q: %d writes, %v", text, count, err)
		}
	}
	if _, _, err := k.Writes("/dev/dm-4"); err == nil {
		t.Error("a device that does not exist has statistics")
	}
}

// TestBoundDeviceIsInUse: a device whose node is bound at a pod's path is in use, although nothing has it open.
func TestBoundDeviceIsInUse(t *testing.T) {
	k := testKernel(t)
	node := func(path string, minor uint32) string {
		t.Helper()
		if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(253, minor))); err != nil {
			t.Fatalf("cannot create a device node, for which the test needs root: %v", err)
		}
		return path
	}
	numberOf := func(path string) uint64 {
		var stat unix.Stat_t
		must(t, unix.Stat(path, &stat))
		return stat.Rdev
	}
	pods := t.TempDir()
	device, other := node(filepath.Join(k.Dev, "dm-5"), 5), node(filepath.Join(k.Dev, "dm-6"), 6)
	bound := node(filepath.Join(pods, "raw"), 5)
	if err := k.checkUnbound(device, numberOf(device)); lvm.KindOf(err) != lvm.KindInternal {
		t.Errorf("without a table of mounts: %v", err)
	}
	table := filepath.Join(k.Proc, "self/mountinfo")
	must(t, os.MkdirAll(filepath.Dir(table), 0o755))
	for _, test := range []struct {
		path, bound string
		inUse       bool
	}{
		{device, bound, true},
		{other, bound, false},
		{device, device, false}, // a /dev of bound nodes
		{device, filepath.Join(pods, "gone"), false},
	} {
		must(t, os.WriteFile(table, []byte("1 0 0:5 / /dev rw - devtmpfs udev rw\n2 1 0:5 /dm-5 "+test.bound+" rw - devtmpfs udev rw\n"), 0o644))
		err := k.checkUnbound(test.path, numberOf(test.path))
		if test.inUse && lvm.KindOf(err) != lvm.KindInUse || !test.inUse && err != nil {
			t.Errorf("%s, with a node bound at %s: %v", test.path, test.bound, err)
		}
	}
}

// TestZeroReassigned: Zero writes nothing to a device whose number belongs to another volume now.
func TestZeroReassigned(t *testing.T) {
	k := testKernel(t)
	path := filepath.Join(k.Dev, "dm-0") // a plain file, whose number is 0:0
	must(t, os.WriteFile(path, []byte("somebody's data"), 0o600))
	uuid := filepath.Join(k.Sys, "dev/block/0:0/dm/uuid")
	must(t, os.MkdirAll(filepath.Dir(uuid), 0o755))
	for _, now := range []string{"LVM-bbbb", "LVM-aaaa-real", ""} {
		must(t, os.WriteFile(uuid, []byte(now+"\n"), 0o644))
		if err := k.Zero(t.Context(), lvm.Device{UUID: "LVM-aaaa", Path: path}, 0, 15, nil); !errors.Is(err, errReassigned) {
			t.Errorf("%q in the place of LVM-aaaa: %v", now, err)
		}
	}
	must(t, os.Remove(uuid))
	if err := k.Zero(t.Context(), lvm.Device{UUID: "LVM-aaaa", Path: path}, 0, 15, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a device that is not device-mapper's: %v", err)
	}
	must(t, os.WriteFile(uuid, []byte("LVM-aaaa\n"), 0o644)) // the right UUID: now only the kernel refuses, because this is no device
	if err := k.Zero(t.Context(), lvm.Device{UUID: "LVM-aaaa", Path: path}, 0, 15, nil); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("the device itself: %v", err)
	}
}

// TestFindUsers: the command in a message finds the processes that have a device mounted, under any name, and no others.
func TestFindUsers(t *testing.T) {
	proc := t.TempDir()
	for pid, line := range map[string]string{
		"1":  "1 0 8:1 / / rw - ext4 /dev/sda1 rw",
		"20": "30 1 253:5 / /var/lib/kubelet rw - ext4 /dev/mapper/vg-lv rw",
		"21": "31 1 0:47 / /data rw - btrfs /dev/dm-5 rw",
		"22": "32 1 253:50 / /data rw - ext4 /dev/dm-50 rw",
		"23": "33 1 1253:5 / /data rw - ext4 /dev/xdm-5 rw",
	} {
		path := filepath.Join(proc, pid, "mountinfo")
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(line+"\n"), 0o644))
	}
	command := regexp.MustCompile(`grep .*mountinfo`).FindString(FindUsers("/dev/dm-5", unix.Mkdev(253, 5)))
	out, err := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(command, "/proc", proc)).Output()
	if want := proc + "/20/mountinfo\n" + proc + "/21/mountinfo\n"; err != nil || string(out) != want {
		t.Errorf("%s: %v, %q, want %q", command, err, out, want)
	}
}
