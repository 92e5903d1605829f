//go:build reallvm

package lvmtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// hostLVM runs the node's lvm with the node's configuration, including udev if it runs; without udev on the host, lvm works
// without it.
func hostLVM(t testing.TB, argv ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "lvm", argv...)
	if _, err := os.Stat("/run/udev/control"); err != nil {
		cmd.Env = append(os.Environ(), "DM_DISABLE_UDEV=1")
	}
	outputOf(t, cmd)
}

// stopUdev stops udev's daemon, and lets lvm see that, until the test ends.
func stopUdev(t testing.TB) {
	t.Helper()
	settleUdev(t)
	tool(t, "udevadm", "control", "--exit")
	must(t, os.RemoveAll("/run/udev/control"))
	t.Cleanup(func() {
		tool(t, "/lib/systemd/systemd-udevd", "--daemon")
		tool(t, "udevadm", "trigger", "--action=add", "--subsystem-match=block")
		settleUdev(t)
	})
}

func settleUdev(t testing.TB) {
	t.Helper()
	if _, err := os.Stat("/run/udev/control"); err == nil {
		tool(t, "udevadm", "settle")
	}
}

// hostNames lists the names of devices of the group's volumes: in /dev/mapper by device-mapper's name, in /dev/GROUP by the
// volume's name.
func hostNames(t testing.TB, group string) (names []string) {
	t.Helper()
	for _, pattern := range []string{"/dev/mapper/" + strings.ReplaceAll(group, "-", "--") + "-*", "/dev/" + group + "/*"} {
		found, err := filepath.Glob(pattern)
		must(t, err)
		names = append(names, found...)
	}
	return names
}

// checkHostNames fails for each name that does not lead to the device of its volume.
func checkHostNames(t testing.TB, when, group string) {
	t.Helper()
	settleUdev(t)
	for _, path := range hostNames(t, group) {
		want := filepath.Base(path)
		if filepath.Dir(path) != "/dev/mapper" {
			want = strings.ReplaceAll(group, "-", "--") + "-" + strings.ReplaceAll(want, "-", "--")
		}
		var stat unix.Stat_t
		if err := unix.Stat(path, &stat); err != nil {
			t.Errorf("%s: %s leads nowhere: %v", when, path, err)
			continue
		}
		name, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/dm/name", unix.Major(stat.Rdev), unix.Minor(stat.Rdev)))
		if got := strings.TrimSpace(string(name)); got != want {
			t.Errorf("%s: %s leads to the device of %q (%v)", when, path, got, err)
		}
	}
}

// TestDeviceNames_RealLVM: with the driver and an admin's lvm at work, no name in the host's /dev ever leads to another volume than
// its own, with udev and without, and both can reuse a former name.
func TestDeviceNames_RealLVM(t *testing.T) {
	for _, udev := range []bool{true, false} {
		t.Run(fmt.Sprintf("udev %v", udev), func(t *testing.T) {
			b := realFixture(t).oneAtATime()
			if !udev {
				stopUdev(t)
			}
			d := b.Start(t)
			first := d.create(t, b.spec("a", 8*lvm.MiB))
			checkHostNames(t, "a volume of the driver", realGroup)
			if there := len(hostNames(t, realGroup)) > 0; there != udev {
				t.Errorf("with udev %v, a volume has the names %q in /dev", udev, hostNames(t, realGroup))
			}
			device, _, err := d.Device(first.ID, first.UUID)
			must(t, err)
			if info, err := os.Stat(device); err != nil || info.Mode()&os.ModeDevice == 0 {
				t.Errorf("the device of a pod's mounted volume, %s: %v", device, err)
			}
			hostLVM(t, "lvremove", "-y", realGroup+"/"+first.ID.LV)
			checkHostNames(t, "an admin's lvremove", realGroup)
			second := d.create(t, b.spec("b", 8*lvm.MiB))
			if again, _, err := d.Device(second.ID, second.UUID); err != nil || again != device {
				t.Logf("the next volume has %s, the previous one had %s: %v", again, device, err)
			}
			checkHostNames(t, "the driver's next volume", realGroup)
			hostLVM(t, "lvcreate", "-y", "-an", "-Zn", "-L", "8m", "-n", first.ID.LV, realGroup)
			hostLVM(t, "lvchange", "-ay", realGroup+"/"+first.ID.LV)
			checkHostNames(t, "an admin's volume with the first one's name", realGroup)
			hostLVM(t, "lvremove", "-y", realGroup+"/"+first.ID.LV)

			raid := b.spec("raid", 8*lvm.MiB)
			raid.Class.Layout, raid.Class.Mirrors = lvm.LayoutRAID1, 1
			mirror := d.create(t, raid)
			thin := b.spec("thin", 8*lvm.MiB)
			thin.Class.Layout, thin.Class.Pool, thin.Class.Overprovision = lvm.LayoutThin, "names", 100
			thin.Class.Wipe = ""
			d.create(t, thin)
			checkHostNames(t, "a thin volume", realGroup)
			hostLVM(t, "lvremove", "-y", "-ff", realGroup+"/names")
			hostLVM(t, "lvcreate", "-y", "--type", "thin-pool", "-L", "16m", "-n", "names", realGroup)
			checkHostNames(t, "an admin's pool with the name of the driver's", realGroup)
			hostLVM(t, "lvremove", "-y", "-ff", realGroup+"/names")
			d.create(t, thin)
			checkHostNames(t, "the driver's pool again", realGroup)

			for _, v := range []lvm.Volume{mirror, second} {
				hostLVM(t, "lvchange", "-an", realGroup+"/"+v.ID.LV)
				hostLVM(t, "lvchange", "-ay", realGroup+"/"+v.ID.LV)
			}
			hostLVM(t, "lvchange", "--refresh", realGroup+"/names")
			if len(hostNames(t, realGroup)) == 0 {
				t.Error("an admin's lvchange creates no names in /dev")
			}
			b.deleteAll(t, d)
			must(t, d.ExtendThinPools(t.Context()))
			checkHostNames(t, "no volume of the driver", realGroup)
			if left := hostNames(t, realGroup); !udev && len(left) > 0 {
				t.Errorf("with no volume of the driver left, /dev has %q", left)
			}
			hostLVM(t, "lvremove", "-y", "-ff", realGroup)
			hostLVM(t, "vgrename", realGroup, realGroup+"-2")
			hostLVM(t, "vgrename", realGroup+"-2", realGroup)
			if left := append(hostNames(t, realGroup), hostNames(t, realGroup+"-2")...); len(left) > 0 {
				t.Errorf("with no volume left, /dev has %q", left)
			}
		})
	}
}

// TestStaleDeviceNames_RealLVM: a start removes the names that an earlier version created in the host's /dev, and no others.
func TestStaleDeviceNames_RealLVM(t *testing.T) {
	dir := t.TempDir()
	b := realFixture(t)
	d := startReal(t, dir)
	kept := d.create(t, b.spec("kept", 8*lvm.MiB))
	hostLVM(t, "lvcreate", "-y", "-L", "8m", "-n", "by-hand", realGroup)
	d.close(t)
	settleUdev(t)
	mapper := "/dev/mapper/" + strings.ReplaceAll(realGroup, "-", "--") + "-"
	number := func(path string) int {
		var stat unix.Stat_t
		must(t, unix.Stat(path, &stat))
		return int(stat.Rdev)
	}
	ours, theirs := number(mapper+mangled(kept.ID.LV)), number(mapper+"by--hand")
	must(t, os.Remove(mapper+mangled(kept.ID.LV)))
	must(t, os.Remove("/dev/"+realGroup+"/"+kept.ID.LV))
	old := filepath.Join(dir, "backup", "nodelvm-former")
	must(t, os.WriteFile(old, nil, 0o600))
	nodes := map[string]int{ // a name, and the device at it
		mapper + mangled(kept.ID.LV):      ours, // no lvm would remove it with the volume
		mapper + "removed":                ours,
		mapper + "gone":                   int(unix.Mkdev(unix.Major(uint64(ours)), 250)),
		"/dev/mapper/nodelvm--former-lv":  theirs,
		"/dev/mapper/nodelvm--unknown-lv": ours, // a group that the driver never had
	}
	for path, device := range nodes {
		must(t, unix.Mknod(path, unix.S_IFBLK|0o600, device))
		t.Cleanup(func() { _ = os.Remove(path) })
	}
	for _, link := range []string{kept.ID.LV, "removed", "gone"} {
		must(t, os.Symlink(mapper+mangled(link), filepath.Join("/dev", realGroup, link)))
	}
	before := tool(t, "dmsetup", "table")
	next := startReal(t, dir)
	t.Cleanup(func() { next.close(t) })
	want := []string{mapper + "by--hand", "/dev/" + realGroup + "/by-hand"}
	if left := hostNames(t, realGroup); !slices.Equal(left, want) {
		t.Errorf("/dev has %q, want %q", left, want)
	}
	if left := hostNames(t, "nodelvm-former"); len(left) > 0 {
		t.Errorf("for a renamed group, /dev has %q", left)
	}
	if len(hostNames(t, "nodelvm-unknown")) != 1 {
		t.Error("a start removed the name of a group that the driver never had")
	}
	if after := tool(t, "dmsetup", "table"); after != before {
		t.Errorf("devices changed:\n%s\n%s", before, after)
	}
	if device, active, err := next.Device(kept.ID, kept.UUID); err != nil || !active || number(device) != ours {
		t.Errorf("the volume's device is %s, active %v: %v", device, active, err)
	}
	hostLVM(t, "lvchange", "--refresh", realGroup+"/"+kept.ID.LV)
	checkHostNames(t, "after an admin's refresh", realGroup)
	if !slices.Contains(hostNames(t, realGroup), "/dev/"+realGroup+"/"+kept.ID.LV) {
		t.Errorf("an admin's lvchange --refresh does not create the volume's name: /dev has %q", hostNames(t, realGroup))
	}
	must(t, next.Delete(t.Context(), kept.ID))
	next.waitWiped(t)
	checkHostNames(t, "after its deletion", realGroup)
	hostLVM(t, "lvremove", "-y", realGroup+"/by-hand")
}

func mangled(lv string) string { return strings.ReplaceAll(lv, "-", "--") }

// TestDeviceDirWithoutDevices_RealLVM: the driver creates volumes if /run is mounted with nodev, as on a host, and in the end
// unmounts what it mounted for that.
func TestDeviceDirWithoutDevices_RealLVM(t *testing.T) {
	b := realFixture(t)
	dir := t.TempDir()
	etc := filepath.Join(dir, "etc")
	must(t, os.Mkdir(etc, 0o700))
	must(t, unix.Mount("nodev", etc, "tmpfs", unix.MS_NODEV, ""))
	t.Cleanup(func() { must(t, unix.Unmount(etc, 0)) })
	d := startReal(t, dir)
	v := d.create(t, b.light("v", 8*lvm.MiB))
	must(t, d.Delete(t.Context(), v.ID))
	d.waitWiped(t)
	d.close(t)
	mounts, err := os.ReadFile("/proc/self/mounts")
	must(t, err)
	if strings.Contains(string(mounts), filepath.Join(etc, "dev")) {
		t.Errorf("it stays mounted:\n%s", mounts)
	}
}

// TestKilledLVMLeavesNoDeviceName_RealLVM: an lvm of the driver that is killed at any moment of an lvcreate leaves no wrong name in
// the host's /dev, and what it leaves in the driver's device directory blocks nothing.
func TestKilledLVMLeavesNoDeviceName_RealLVM(t *testing.T) {
	b := realFixture(t)
	dir := t.TempDir()
	d := startReal(t, dir)
	t.Cleanup(func() { d.close(t) })
	began := time.Now()
	d.create(t, b.light("whole", 8*lvm.MiB))
	whole := time.Since(began)
	for i := range 12 {
		ctx, cancel := context.WithTimeout(t.Context(), whole*time.Duration(i+1)/12)
		cmd := exec.CommandContext(ctx, "lvm", "lvcreate", "-y", "-ay", "-Wy", "-Zy", "-L", "8m", "-n", fmt.Sprintf("killed-%d", i), realGroup)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LVM_SYSTEM_DIR=" + filepath.Join(dir, "etc")}
		_ = cmd.Run()
		cancel()
		checkHostNames(t, "an lvcreate that was killed", realGroup)
		_ = exec.CommandContext(t.Context(), "lvm", "lvremove", "-y", realGroup+"/"+fmt.Sprintf("killed-%d", i)).Run()
		checkHostNames(t, "its removal", realGroup)
		d.create(t, b.light(fmt.Sprintf("next-%d", i), 8*lvm.MiB))
		checkHostNames(t, "the driver's next volume", realGroup)
	}
	b.deleteAll(t, d)
}
