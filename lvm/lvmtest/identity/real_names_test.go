//go:build reallvm

package identity

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

// hostLVM runs the node's lvm with the node's configuration, including udev if it runs; without udev on the host, lvm works
// without it.
func hostLVM(t testing.TB, argv ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "lvm", argv...)
	if _, err := os.Stat("/run/udev/control"); err != nil {
		cmd.Env = append(os.Environ(), "DM_DISABLE_UDEV=1")
	}
	reallvm.Output(t, cmd)
}

// stopUdev stops udev's daemon, and lets lvm see that, until the test ends.
func stopUdev(t testing.TB) {
	t.Helper()
	settleUdev(t)
	reallvm.Tool(t, "udevadm", "control", "--exit")
	hosttest.Must(t, os.RemoveAll("/run/udev/control"))
	t.Cleanup(func() {
		reallvm.Tool(t, "/lib/systemd/systemd-udevd", "--daemon")
		reallvm.Tool(t, "udevadm", "trigger", "--action=add", "--subsystem-match=block")
		settleUdev(t)
	})
}

func settleUdev(t testing.TB) {
	t.Helper()
	if _, err := os.Stat("/run/udev/control"); err == nil {
		reallvm.Tool(t, "udevadm", "settle")
	}
}

// hostNames lists the names of devices of the group's volumes: in /dev/mapper by device-mapper's name, in /dev/GROUP by the
// volume's name.
func hostNames(t testing.TB, group string) (names []string) {
	t.Helper()
	for _, pattern := range []string{"/dev/mapper/" + strings.ReplaceAll(group, "-", "--") + "-*", "/dev/" + group + "/*"} {
		found, err := filepath.Glob(pattern)
		hosttest.Must(t, err)
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
			b := reallvm.NewFixture(t).OneAtATime()
			if !udev {
				stopUdev(t)
			}
			d := b.Start(t)
			first := d.MustCreate(t, b.Spec("a", 8*lvm.MiB))
			checkHostNames(t, "a volume of the driver", reallvm.Group)
			if there := len(hostNames(t, reallvm.Group)) > 0; there != udev {
				t.Errorf("with udev %v, a volume has the names %q in /dev", udev, hostNames(t, reallvm.Group))
			}
			device := d.MustDevice(t, first)
			if info, err := os.Stat(device); err != nil || info.Mode()&os.ModeDevice == 0 {
				t.Errorf("the device of a pod's mounted volume, %s: %v", device, err)
			}
			hostLVM(t, "lvremove", "-y", reallvm.Group+"/"+first.ID.LV)
			checkHostNames(t, "an admin's lvremove", reallvm.Group)
			second := d.MustCreate(t, b.Spec("b", 8*lvm.MiB))
			if again, _, err := d.Device(t.Context(), second.ID, second.UUID); err != nil || again != device {
				t.Logf("the next volume has %s, the previous one had %s: %v", again, device, err)
			}
			checkHostNames(t, "the driver's next volume", reallvm.Group)
			hostLVM(t, "lvcreate", "-y", "-an", "-Zn", "-L", "8m", "-n", first.ID.LV, reallvm.Group)
			hostLVM(t, "lvchange", "-ay", reallvm.Group+"/"+first.ID.LV)
			checkHostNames(t, "an admin's volume with the first one's name", reallvm.Group)
			hostLVM(t, "lvremove", "-y", reallvm.Group+"/"+first.ID.LV)

			raid := b.Spec("raid", 8*lvm.MiB)
			raid.Class.Layout, raid.Class.Mirrors = lvm.LayoutRAID1, 1
			mirror := d.MustCreate(t, raid)
			thin := b.Spec("thin", 8*lvm.MiB)
			thin.Class.Layout, thin.Class.Pool, thin.Class.Overprovision = lvm.LayoutThin, "names", 100
			thin.Class.Wipe = ""
			d.MustCreate(t, thin)
			checkHostNames(t, "a thin volume", reallvm.Group)
			hostLVM(t, "lvremove", "-y", "-ff", reallvm.Group+"/names")
			hostLVM(t, "lvcreate", "-y", "--type", "thin-pool", "-L", "16m", "-n", "names", reallvm.Group)
			checkHostNames(t, "an admin's pool with the name of the driver's", reallvm.Group)
			hostLVM(t, "lvremove", "-y", "-ff", reallvm.Group+"/names")
			d.MustCreate(t, thin)
			checkHostNames(t, "the driver's pool again", reallvm.Group)

			for _, v := range []lvm.Volume{mirror, second} {
				hostLVM(t, "lvchange", "-an", reallvm.Group+"/"+v.ID.LV)
				hostLVM(t, "lvchange", "-ay", reallvm.Group+"/"+v.ID.LV)
			}
			hostLVM(t, "lvchange", "--refresh", reallvm.Group+"/names")
			if len(hostNames(t, reallvm.Group)) == 0 {
				t.Error("an admin's lvchange creates no names in /dev")
			}
			b.DeleteAll(t, d)
			hosttest.Must(t, d.ExtendThinPools(t.Context()))
			checkHostNames(t, "no volume of the driver", reallvm.Group)
			if left := hostNames(t, reallvm.Group); !udev && len(left) > 0 {
				t.Errorf("with no volume of the driver left, /dev has %q", left)
			}
			hostLVM(t, "lvremove", "-y", "-ff", reallvm.Group)
			renamed := reallvm.Group + "-renamed"
			hostLVM(t, "vgrename", reallvm.Group, renamed)
			hostLVM(t, "vgrename", renamed, reallvm.Group)
			if left := append(hostNames(t, reallvm.Group), hostNames(t, renamed)...); len(left) > 0 {
				t.Errorf("with no volume left, /dev has %q", left)
			}
		})
	}
}

// TestDeviceDirWithoutDevices_RealLVM: the driver creates volumes if /run is mounted with nodev, as on a host, and in the end
// unmounts what it mounted for that.
func TestDeviceDirWithoutDevices_RealLVM(t *testing.T) {
	b := reallvm.NewFixture(t)
	dir := t.TempDir()
	etc := filepath.Join(dir, "etc")
	hosttest.Must(t, os.Mkdir(etc, 0o700))
	hosttest.Must(t, unix.Mount("nodev", etc, "tmpfs", unix.MS_NODEV, ""))
	t.Cleanup(func() { hosttest.Must(t, unix.Unmount(etc, 0)) })
	d := reallvm.StartDriver(t, dir)
	v := d.MustCreate(t, b.Light("v", 8*lvm.MiB))
	d.MustRemove(t, v)
	d.Stop(t)
	mounts, err := os.ReadFile("/proc/self/mounts")
	hosttest.Must(t, err)
	if strings.Contains(string(mounts), filepath.Join(etc, "dev")) {
		t.Errorf("it stays mounted:\n%s", mounts)
	}
}

// TestKilledLVMLeavesNoDeviceName_RealLVM: an lvm of the driver that is killed at any moment of an lvcreate leaves no wrong name in
// the host's /dev, and what it leaves in the driver's device directory blocks nothing.
func TestKilledLVMLeavesNoDeviceName_RealLVM(t *testing.T) {
	b := reallvm.NewFixture(t)
	dir := t.TempDir()
	d := reallvm.StartDriver(t, dir)
	t.Cleanup(func() { d.Stop(t) })
	began := time.Now()
	d.MustCreate(t, b.Light("whole", 8*lvm.MiB))
	whole := time.Since(began)
	for i := range 12 {
		ctx, cancel := context.WithTimeout(t.Context(), whole*time.Duration(i+1)/12)
		cmd := exec.CommandContext(ctx, "lvm", "lvcreate", "-y", "-ay", "-Wy", "-Zy", "-L", "8m", "-n", fmt.Sprintf("killed-%d", i), reallvm.Group)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LVM_SYSTEM_DIR=" + filepath.Join(dir, "etc")}
		_ = cmd.Run()
		cancel()
		checkHostNames(t, "an lvcreate that was killed", reallvm.Group)
		_ = exec.CommandContext(t.Context(), "lvm", "lvremove", "-y", reallvm.Group+"/"+fmt.Sprintf("killed-%d", i)).Run()
		checkHostNames(t, "its removal", reallvm.Group)
		d.MustCreate(t, b.Light(fmt.Sprintf("next-%d", i), 8*lvm.MiB))
		checkHostNames(t, "the driver's next volume", reallvm.Group)
	}
	b.DeleteAll(t, d)
}
