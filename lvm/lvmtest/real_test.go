//go:build reallvm

package lvmtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/host"
	"github.com/nodelvm/nodelvm/lvm/internal/ondisk"
)

// realGroup is on six loop devices over files in memory, and all tests share it: creating it takes longer than most tests.
const realGroup = "nodelvm-test"

// realSizes are the sizes of its disks in MiB.
var realSizes = []int{128, 128, 160, 96, 192, 96}

// realDisks are the loop devices; empty until the first test needs them.
var realDisks []string

// makeDisks creates them, or fails the test.
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
	forgetDisks()
	for i, size := range realSizes {
		realDisks = append(realDisks, makeDisk(t, fmt.Sprint("disk", i), size))
	}
}

func makeDisk(t testing.TB, name string, mebibytes int) string {
	t.Helper()
	disableUdevRules(t, false)
	file := filepath.Join("/dev/shm", realGroup+"-"+name)
	must(t, os.RemoveAll(file))
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Truncate(file, int64(mebibytes)<<20))
	return strings.TrimSpace(tool(t, "losetup", "--find", "--show", file))
}

// forgetDisks removes the group and the disks of this run, or of an earlier one that was killed.
func forgetDisks() {
	_ = exec.Command("vgremove", "-ff", "-y", realGroup).Run() //nolint:noctx // it also runs after the last test
	disks, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return
	}
	for _, path := range disks {
		file, err := os.ReadFile(path)
		if err == nil && strings.HasPrefix(string(file), filepath.Join("/dev/shm", realGroup+"-")) {
			_ = exec.Command("losetup", "--detach", "/dev/"+strings.Split(path, "/")[3]).Run() //nolint:noctx // as above
			_ = os.Remove(strings.TrimSpace(string(file)))
		}
	}
	realDisks = nil
}

func TestMain(m *testing.M) {
	code := m.Run()
	if len(realDisks) > 0 {
		forgetDisks()
		_ = os.Remove(udevRules)
	}
	os.Exit(code)
}

func tool(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(context.Background(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return string(out)
}

// admin runs the node's lvm with the node's configuration, but without udev: these tests also run where udev does not. (LVM
// locks 8 MiB of memory page by page before it suspends a device; a node's root is on none of them.)
func admin(t testing.TB, argv ...string) string {
	t.Helper()
	config := "activation { udev_sync=0 udev_rules=0 monitoring=0 reserved_memory=0 reserved_stack=0 }"
	argv = append([]string{argv[0], "--config", config}, argv[1:]...)
	return outputOf(t, exec.CommandContext(context.Background(), "lvm", argv...))
}

func outputOf(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(cmd.Args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// realFixture is the group without a volume, whatever an earlier test left in it.
func realFixture(t testing.TB) Fixture {
	b := Fixture{
		Group:     realGroup,
		Tag:       "fast",
		Admin:     func(t testing.TB, argv ...string) { t.Helper(); admin(t, argv...) },
		Read:      readDisks,
		Suspended: isSuspended,
		Spoil:     spoil,
		Leave:     func(t testing.TB, message string) { t.Helper(); leaveMessage(t, realGroup, message) },
		Lost:      func(t testing.TB) []int { t.Helper(); return lostDevices(t, realGroup) },
		Hold: func(t testing.TB, device string) func() {
			f, err := os.Open(device)
			must(t, err)
			return func() { must(t, f.Close()) }
		},
	}
	dir := t.TempDir()
	b.Start = func(t testing.TB) *Driver { return startReal(t, dir) }
	if len(realDisks) == 0 {
		makeDisks(t)
	} else if g, there := groupNamed(readDisks(t), realGroup); there && len(g.LVs) == 0 && g.Problem == "" && isWhole(g) {
		return b
	} else if there {
		admin(t, "vgremove", "-ff", "-y", realGroup)
	}
	admin(t, append([]string{"vgcreate", "-y", "-s", "4m", "--addtag", "fast", realGroup}, realDisks...)...)
	return b
}

// mapped is the device of a device-mapper name. udev creates and removes the names in /dev/mapper with a delay, and may leave
// that of an earlier device with the same name.
func mapped(t testing.TB, name string) string {
	t.Helper()
	return "/dev/" + dmsetup(t, "info", "-c", "--noheadings", "-o", "blkdevname", name)
}

func isSuspended(t testing.TB, device string) bool {
	state, err := os.ReadFile("/sys/class/block/" + filepath.Base(device) + "/dm/suspended")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return false // removed meanwhile: an lvm of a killed driver still works
	}
	must(t, err)
	return strings.TrimSpace(string(state)) == "1"
}

// isWhole reports whether no disk of the group is missing or has the MISSING flag.
func isWhole(g lvm.Group) bool {
	return !slices.ContainsFunc(g.PVs, func(pv lvm.PV) bool { return pv.Missing })
}

// edits change a group's metadata to make the group unusable.
var edits = map[string][2]string{
	"exported":  {`status = ["RESIZEABLE"`, `status = ["EXPORTED", "RESIZEABLE"`},
	"foreign":   {`	format = "lvm2"`, `	system_id = "elsewhere"` + "\n" + `	format = "lvm2"`},
	"read-only": {`status = ["RESIZEABLE", "READ", "WRITE"]`, `status = ["RESIZEABLE", "READ"]`},
	"clustered": {`status = ["RESIZEABLE"`, `status = ["CLUSTERED", "RESIZEABLE"`},
	"fixed":     {`status = ["RESIZEABLE", `, `status = [`},
}

// spoil restores the first MiB of each disk in the end.
func spoil(t testing.TB, how string) (restore func()) {
	t.Helper()
	heads := make([][]byte, len(realDisks))
	for i, disk := range realDisks {
		heads[i] = make([]byte, lvm.MiB)
		f, err := os.Open(disk)
		must(t, err)
		_, err = f.Read(heads[i])
		must(t, err)
		must(t, f.Close())
	}
	last := len(realDisks) - 1
	switch how {
	case "partial":
		overwrite(t, realDisks[last], make([]byte, 4096))
	case "duplicated":
		double := makeDisk(t, "double", realSizes[last])
		overwrite(t, double, heads[last])
		return func() { detach(t, double) }
	default:
		file := filepath.Join(t.TempDir(), "metadata")
		admin(t, "vgcfgbackup", "-f", file, realGroup)
		text, err := os.ReadFile(file)
		must(t, err)
		edited := strings.Replace(string(text), edits[how][0], edits[how][1], 1)
		if edited == string(text) {
			t.Fatalf("no %s in %s", edits[how][0], text)
		}
		must(t, os.WriteFile(file, []byte(edited), 0o600))
		admin(t, "vgcfgrestore", "-y", "-f", file, realGroup)
	}
	return func() {
		for i, disk := range realDisks {
			overwrite(t, disk, heads[i])
		}
	}
}

// detach waits until the loop device is removed, which takes until no process, such as udev, has it open.
func detach(t testing.TB, disk string) {
	t.Helper()
	tool(t, "losetup", "--detach", disk)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat("/sys/block/" + filepath.Base(disk) + "/loop"); os.IsNotExist(err) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s cannot be detached", disk)
		}
	}
}

func overwrite(t testing.TB, disk string, head []byte) {
	t.Helper()
	f, err := os.OpenFile(disk, os.O_WRONLY|os.O_SYNC, 0)
	must(t, err)
	_, err = f.Write(head)
	must(t, err)
	must(t, f.Close())
}

func readDisks(t testing.TB) lvm.State {
	t.Helper()
	s, err := new(ondisk.Disks).Read(context.Background())
	must(t, err)
	return s
}

func groupNamed(s lvm.State, name string) (lvm.Group, bool) {
	for _, g := range s.Groups {
		if string(g.Name) == name {
			return g, true
		}
	}
	return lvm.Group{}, false
}

func startReal(t testing.TB, dir string) *Driver {
	return startRealWith(t, dir, func(*lvm.Config) {})
}

func startRealWith(t testing.TB, dir string, change func(*lvm.Config)) *Driver {
	t.Helper()
	d := newReal(t, dir, change)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must(t, d.Start(ctx))
	return d
}

// newReal returns a driver that has not been started: it recovers nothing and waits for no other driver.
func newReal(t testing.TB, dir string, change func(*lvm.Config)) *Driver {
	t.Helper()
	d := &Driver{}
	cfg := lvm.Config{
		SystemDir: filepath.Join(dir, "etc"), LockDir: "/run/lock/lvm", BackupDir: filepath.Join(dir, "backup"),
		Cluster: Cluster, Observe: d.Observe, CacheTTL: -1, // an admin's change shows at once
		EmptyPoolsFor: time.Nanosecond, // when a test calls ExtendThinPools
	}
	change(&cfg)
	host, err := host.NewHost(cfg)
	must(t, err)
	d.Host = host
	return d
}

func TestConformance_RealLVM(t *testing.T) {
	Conformance(t, func(t *testing.T) Fixture { return replayed(t, realFixture(t)) })
}
