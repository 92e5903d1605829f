//go:build reallvm

package reallvm

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/host"
	"github.com/nodelvm/nodelvm/lvm/internal/ondisk"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// NewFixture returns the group without a volume, whatever an earlier test left in it.
func NewFixture(t testing.TB) hosttest.Fixture {
	b := hosttest.Fixture{
		Group:     Group,
		Tag:       "fast",
		Admin:     func(t testing.TB, argv ...string) { t.Helper(); Admin(t, argv...) },
		Read:      ReadDisks,
		Suspended: IsSuspended, TakesNoWrites: TakesNoWrites, Write: write,
		Spoil: spoil,
		Leave: func(t testing.TB, message string) { t.Helper(); leaveMessage(t, Group, message) },
		Lost:  func(t testing.TB) []int { t.Helper(); return LostDevices(t, Group) },
		Hold: func(t testing.TB, device string) func() {
			f, err := os.Open(device)
			hosttest.Must(t, err)
			return func() { hosttest.Must(t, f.Close()) }
		},
		Bind: func(t testing.TB, device string) func() {
			path := filepath.Join(t.TempDir(), "raw")
			hosttest.Must(t, os.WriteFile(path, nil, 0o600))
			hosttest.Must(t, unix.Mount(device, path, "", unix.MS_BIND, ""))
			return func() { hosttest.Must(t, unix.Unmount(path, 0)) }
		},
	}
	dir := t.TempDir()
	b.Start = func(t testing.TB) *hosttest.Driver { return StartDriver(t, dir) }
	if len(loops) == 0 {
		makeDisks(t)
	} else if g, there := FindGroup(ReadDisks(t), Group); there && len(g.LVs) == 0 && g.Problem == "" && IsWhole(g) {
		forgetNames(t)
		return b
	} else if there {
		Admin(t, "vgremove", "-ff", "-y", Group)
	}
	forgetNames(t)
	Admin(t, append([]string{"vgcreate", "-y", "-s", "4m", "--addtag", "fast", Group}, loops...)...)
	return b
}

// forgetNames removes the group's names in /dev, of which no device is left: those that an admin's lvm created for volumes that a killed
// driver, or a driver under another name of the group, has removed since. The node has no udev, which would remove them. LVM refuses a
// group while they exist, and a name leads to another test's volume when that gets the device's number.
func forgetNames(t testing.TB) {
	t.Helper()
	names, err := filepath.Glob("/dev/mapper/" + strings.ReplaceAll(Group, "-", "--") + "-*")
	hosttest.Must(t, err)
	for _, name := range append(names, filepath.Join("/dev", Group)) {
		hosttest.Must(t, os.RemoveAll(name))
	}
}

// IsWhole reports whether no disk of the group is missing or has the MISSING flag.
func IsWhole(g lvm.Group) bool {
	return !slices.ContainsFunc(g.PVs, func(pv lvm.PV) bool { return pv.Missing })
}

// ReadDisks reads LVM's metadata from the disks of this node.
func ReadDisks(t testing.TB) lvm.State {
	t.Helper()
	s, err := new(ondisk.Disks).Read(context.Background())
	hosttest.Must(t, err)
	return s
}

// FindGroup finds a group by its name.
func FindGroup(s lvm.State, name string) (lvm.Group, bool) {
	for _, g := range s.Groups {
		if string(g.Name) == name {
			return g, true
		}
	}
	return lvm.Group{}, false
}

// StartDriver starts a driver with its files below dir. It runs until its Stop.
func StartDriver(t testing.TB, dir string) *hosttest.Driver {
	t.Helper()
	return StartDriverWith(t, dir, func(*lvm.Config) {})
}

// StartDriverWith starts a driver whose config change has changed.
func StartDriverWith(t testing.TB, dir string, change func(*lvm.Config)) *hosttest.Driver {
	t.Helper()
	d := NewDriver(t, dir, change)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	hosttest.Must(t, d.Start(ctx))
	return d
}

// NewDriver returns a driver that has not been started: it recovers nothing and waits for no other driver.
func NewDriver(t testing.TB, dir string, change func(*lvm.Config)) *hosttest.Driver {
	t.Helper()
	d := &hosttest.Driver{}
	cfg := lvm.Config{
		SystemDir: filepath.Join(dir, "etc"), LockDir: "/run/lock/lvm", BackupDir: filepath.Join(dir, "backup"),
		Cluster: hosttest.Cluster, Observe: d.Observe, CacheTTL: -1, // an admin's change shows at once
		EmptyPoolsFor: time.Nanosecond, // when a test calls ExtendThinPools
	}
	change(&cfg)
	host, err := host.NewHost(cfg)
	hosttest.Must(t, err)
	d.Host = host
	return d
}
