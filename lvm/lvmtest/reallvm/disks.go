//go:build reallvm

package reallvm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// Group is on six loop devices over files in memory, and all tests of a package share it: creating it takes longer than most tests.
const Group = "nodelvm-test"

// Sizes are the sizes of its disks in MiB.
var Sizes = []int{128, 128, 160, 96, 192, 96}

// loops are the disks' loop devices; empty until the first test needs them.
var loops []string

// Disks returns the disks of Group, once a test has called NewFixture.
func Disks() []string { return slices.Clone(loops) }

// Main runs the tests of a package, and then removes the group and its disks if a test made them. It is for TestMain.
func Main(m *testing.M) {
	code := m.Run()
	if len(loops) > 0 {
		ForgetDisks()
		RemoveUdevRules()
	}
	os.Exit(code)
}

// makeDisks creates the disks of Group, or fails the test.
func makeDisks(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("these tests create groups on loop devices with the real LVM: run them as root, inside a lab node")
	}
	if _, err := os.Stat("/dev/mapper/control"); err != nil {
		if out, err := exec.CommandContext(t.Context(), "modprobe", "dm-mod").CombinedOutput(); err != nil {
			t.Fatalf("these tests need device-mapper in the kernel, as a lab node has it: %v: %s", err, out)
		}
	}
	ForgetDisks()
	for i, size := range Sizes {
		loops = append(loops, MakeDisk(t, fmt.Sprint("disk", i), size))
	}
}

// MakeDisk creates a disk: a loop device over a file in memory. The test removes both, or a later one of this name replaces the file.
func MakeDisk(t testing.TB, name string, mebibytes int) string {
	t.Helper()
	DisableUdevRules(t, false)
	file := filepath.Join("/dev/shm", Group+"-"+name)
	hosttest.Must(t, os.RemoveAll(file))
	hosttest.Must(t, os.WriteFile(file, nil, 0o600))
	hosttest.Must(t, os.Truncate(file, int64(mebibytes)<<20))
	return strings.TrimSpace(Tool(t, "losetup", "--find", "--show", file))
}

// LoopDisk creates a disk that is removed when the test ends.
func LoopDisk(t testing.TB, name string, mebibytes int) string {
	t.Helper()
	disk := MakeDisk(t, name, mebibytes)
	t.Cleanup(func() {
		Detach(t, disk)
		hosttest.Must(t, os.Remove(filepath.Join("/dev/shm", Group+"-"+name)))
	})
	return disk
}

// ForgetDisks removes Group and all disks of this run, or of an earlier one that was killed.
func ForgetDisks() {
	_ = exec.Command("vgremove", "-ff", "-y", Group).Run() //nolint:noctx // it also runs after the last test
	disks, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return
	}
	for _, path := range disks {
		file, err := os.ReadFile(path)
		if err == nil && strings.HasPrefix(string(file), filepath.Join("/dev/shm", Group+"-")) {
			_ = exec.Command("losetup", "--detach", "/dev/"+strings.Split(path, "/")[3]).Run() //nolint:noctx // as above
			_ = os.Remove(strings.TrimSpace(string(file)))
		}
	}
	loops = nil
}

// Detach removes a loop device, and waits for that, which takes until no process, such as udev, has it open.
func Detach(t testing.TB, disk string) {
	t.Helper()
	Tool(t, "losetup", "--detach", disk)
	for deadline := time.Now().Add(wait.Limit(30 * time.Second)); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat("/sys/block/" + filepath.Base(disk) + "/loop"); os.IsNotExist(err) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s cannot be detached", disk)
		}
	}
}

// Overwrite writes to the beginning of a disk.
func Overwrite(t testing.TB, disk string, head []byte) {
	t.Helper()
	f, err := os.OpenFile(disk, os.O_WRONLY|os.O_SYNC, 0)
	hosttest.Must(t, err)
	_, err = f.Write(head)
	hosttest.Must(t, err)
	hosttest.Must(t, f.Close())
}
