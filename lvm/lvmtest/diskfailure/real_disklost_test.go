//go:build reallvm

package diskfailure

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

const vanishGroup = "nodelvm-vanish"

// diskLossFixture is a group of two disks, the second of which a test can pull. The first is larger: the driver places a volume on
// the second if it fits there.
type diskLossFixture struct {
	hosttest.Fixture
	disks  []string // device-mapper's names
	tables []string
}

func newDiskLossFixture(t *testing.T) diskLossFixture {
	b := diskLossFixture{Fixture: reallvm.NewFixture(t)}
	b.Group = vanishGroup
	argv := []string{"vgcreate", "-y", "-s", "4m", "--setautoactivation", "n", vanishGroup} // else udev activates volumes when a disk is back
	for i, size := range []int{96, 64} {
		name := fmt.Sprint("vanish", i)
		loop := reallvm.LoopDisk(t, name, size+1) // the disk begins after its first MiB, so that LVM cannot find it there
		disk, table := "nodelvm-"+name, fmt.Sprintf("0 %d linear %s 2048", size*2048, loop)
		reallvm.Tool(t, "dmsetup", "create", "--noudevsync", disk, "--table", table)
		t.Cleanup(func() { reallvm.Tool(t, "dmsetup", "remove", "--noudevsync", "--retry", disk) })
		b.disks, b.tables = append(b.disks, disk), append(b.tables, table)
		argv = append(argv, reallvm.Mapped(t, disk))
	}
	reallvm.Admin(t, argv...)
	t.Cleanup(func() { reallvm.Admin(t, "vgremove", "-ff", "-y", vanishGroup) })
	b.Fixture = b.OneAtATime()
	return b
}

// fail makes every request to the second disk fail until it is put back.
func (b diskLossFixture) fail(t testing.TB) (putBack func()) {
	t.Helper()
	load := func(table string) {
		reallvm.Tool(t, "dmsetup", "suspend", "--noflush", "--nolockfs", b.disks[1])
		reallvm.Tool(t, "dmsetup", "load", b.disks[1], "--table", table)
		reallvm.Tool(t, "dmsetup", "resume", "--noudevsync", b.disks[1])
	}
	load("0 131072 error")
	return sync.OnceFunc(func() { load(b.tables[1]) })
}

// pull removes the second disk with its device until it is put back.
func (b diskLossFixture) pull(t testing.TB) (putBack func()) {
	t.Helper()
	reallvm.Tool(t, "dmsetup", "remove", "--noudevsync", "--retry", b.disks[1])
	return sync.OnceFunc(func() { reallvm.Tool(t, "dmsetup", "create", "--noudevsync", b.disks[1], "--table", b.tables[1]) })
}

// startWith starts a driver that calls after whenever one of its LVM commands has ended.
func (b diskLossFixture) startWith(t *testing.T, after func(lvm.Command)) *hosttest.Driver {
	dir := t.TempDir()
	b.Last().Stop(t)
	d := reallvm.StartDriverWith(t, dir, func(cfg *lvm.Config) {
		observe := cfg.Observe
		cfg.Observe = func(c lvm.Command) { observe(c); after(c) }
	})
	t.Cleanup(func() { d.Stop(t) })
	return d
}

// refused checks that an error has one of these kinds and names the group.
func refused(t *testing.T, what string, err error, kinds ...lvm.Kind) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error, although a disk is missing", what)
		return
	}
	for _, kind := range kinds {
		if lvm.KindOf(err) == kind && strings.Contains(err.Error(), vanishGroup) {
			t.Logf("%s: %v", what, err)
			return
		}
	}
	t.Errorf("%s: kind %d, want one of %v and the name of the group: %v", what, lvm.KindOf(err), kinds, err)
}

// TestDiskLostBetweenRequests_RealLVM: a disk disappears while the driver is idle. The driver refuses what needs the whole group
// and changes nothing, and the other disk's volumes still work. When the disk is back, all is as before.
func TestDiskLostBetweenRequests_RealLVM(t *testing.T) {
	b := newDiskLossFixture(t)
	d := b.Start(t)
	v := d.MustCreate(t, b.Light("kept", 64*lvm.MiB))
	d.MustActivate(t, v)
	before, whole := b.ReadGroup(t), d.MustCapacity(t, b.Class())
	for what, away := range map[string]func(testing.TB) func(){"it fails": b.fail, "it is pulled": b.pull} {
		putBack := away(t)
		d.Counted(t, what, 0, func() {
			_, err := d.Create(t.Context(), b.Light("more", 8*lvm.MiB))
			refused(t, what+": create", err, lvm.KindInsufficientCapacity)
			_, err = d.Extend(t.Context(), v.ID, v.Size+1, 0)
			refused(t, what+": extend", err, lvm.KindBusy)
			if c := d.MustCapacity(t, b.Class()); c != (lvm.Capacity{}) {
				t.Errorf("%s: the capacity is %+v", what, c)
			}
			if found, err := d.Lookup(t.Context(), v.ID); err != nil || found != v {
				t.Errorf("%s: found %+v, %v; want %+v", what, found, err, v)
			}
			if _, err := d.Activate(t.Context(), v.ID, v.UUID); err != nil {
				t.Errorf("%s: the volume on the other disk: %v", what, err)
			}
		})
		putBack()
		b.wantSame(t, d, before, whole)
	}
	d.MustRemove(t, v)
}

// wantSame sees that the group is what it was, and gives what it gave.
func (b diskLossFixture) wantSame(t *testing.T, d *hosttest.Driver, before lvm.Group, whole lvm.Capacity) {
	t.Helper()
	if after := b.ReadGroup(t); !reflect.DeepEqual(before, after) {
		t.Errorf("the group changed from %+v to %+v", before, after)
	}
	if c := d.MustCapacity(t, b.Class()); c != whole {
		t.Errorf("capacity with the disk back %+v, before %+v", c, whole)
	}
}

// TestDiskLostBetweenCommands_RealLVM: a disk disappears between the two commands of one request, after the first one created the
// pool of the first thin volume. The driver refuses the volume; with the disk back, the repeated request creates it.
func TestDiskLostBetweenCommands_RealLVM(t *testing.T) {
	b := newDiskLossFixture(t)
	var putBack func()
	d := b.startWith(t, func(c lvm.Command) {
		if c.Name == "lvcreate" && putBack == nil {
			putBack = b.fail(t)
		}
	})
	spec := b.Thin("a", 8*lvm.MiB, lvm.ID{})
	_, err := d.Create(t.Context(), spec)
	if putBack == nil {
		t.Fatalf("no lvcreate ran: %v", err)
	}
	defer putBack()
	refused(t, "create", err, lvm.KindInsufficientCapacity, lvm.KindInternal, lvm.KindBusy)
	if n := len(b.volumes(t)); n != 0 {
		t.Errorf("%d volumes exist", n)
	}
	putBack()
	v := d.MustCreate(t, spec)
	if got := b.volumes(t); len(got) != 1 || v.State != lvm.StateReady || v.Size != 8*lvm.MiB {
		t.Errorf("created %+v; the group has %v", v, got)
	}
	hosttest.Must(t, d.Delete(t.Context(), v.ID))
	b.RemovePool(t)
}

// volumes names the group's volumes that have a name of the driver.
func (b diskLossFixture) volumes(t testing.TB) (names []string) {
	t.Helper()
	for _, lv := range b.ReadGroup(t).LVs {
		if !lv.Hidden && lv.Thin == nil {
			names = append(names, lv.Name)
		}
	}
	return names
}

// failUnder runs a request whose command finds a disk missing that the driver still planned with: LVM waits for the group's
// lock, which the test holds, and commits after it.
func (b diskLossFixture) failUnder(t *testing.T, do func() error) (putBack func(), err error) {
	t.Helper()
	lock, err := os.OpenFile("/run/lock/lvm/V_"+vanishGroup, os.O_CREATE|os.O_RDWR, 0o600)
	hosttest.Must(t, err)
	hosttest.Must(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	done := make(chan error, 1)
	go func() { done <- do() }()
	waitForLock(t, lock)
	putBack = b.fail(t)
	t.Cleanup(putBack)
	hosttest.Must(t, lock.Close())
	return putBack, <-done
}

// TestDiskLostDuringCommand_RealLVM: a disk disappears after the driver has planned a volume or its extension, and before LVM commits. LVM
// may still exit with 0 after it wrote to the other disk alone; the driver returns the volume only to a repeated request, when the disk is
// back.
func TestDiskLostDuringCommand_RealLVM(t *testing.T) {
	for _, command := range []string{"create", "extend"} {
		t.Run(command, func(t *testing.T) {
			b := newDiskLossFixture(t)
			d := b.Start(t)
			whole := d.MustCapacity(t, b.Class())
			spec := b.Light("a", whole.Largest) // needs the disk
			request := func() error { _, err := d.Create(t.Context(), spec); return err }
			kinds := []lvm.Kind{lvm.KindBusy, lvm.KindInternal, lvm.KindInsufficientCapacity}
			if command == "extend" {
				v := d.MustCreate(t, b.Light("a", 8*lvm.MiB))
				request = func() error { _, err := d.Extend(t.Context(), v.ID, whole.Largest, 0); return err }
				kinds = kinds[:2]
			}
			putBack, err := b.failUnder(t, request)
			refused(t, command, err, kinds...)
			refused(t, "repeated", request(), slices.DeleteFunc(kinds, func(kind lvm.Kind) bool { return kind == lvm.KindInternal })...)
			putBack()
			hosttest.Must(t, request())
			v := d.Volumes(t)[0]
			if device := d.MustActivate(t, v); v.Size != whole.Largest || reallvm.Leaks(t, device, v) > 0 {
				t.Errorf("it is %+v", v)
			}
			d.MustRemove(t, v)
			if c := d.MustCapacity(t, b.Class()); c != whole {
				t.Errorf("capacity in the end %+v, at first %+v", c, whole)
			}
		})
	}
}

// waitForLock waits until a process waits for the lock on this file (proc_locks(5): "->").
func waitForLock(t *testing.T, f *os.File) {
	t.Helper()
	var stat unix.Stat_t
	hosttest.Must(t, unix.Fstat(int(f.Fd()), &stat))
	wait.For(t, 30*time.Second, "a command waits for the group's lock", func() bool {
		locks, err := os.ReadFile("/proc/locks")
		hosttest.Must(t, err)
		return slices.ContainsFunc(strings.Split(string(locks), "\n"), func(line string) bool {
			return strings.Contains(line, "->") && strings.Contains(line, fmt.Sprintf(":%d ", stat.Ino))
		})
	})
}

// TestMissingPV_RealLVM: in a group that lost a disk, an inactive volume on the others can be activated, and LVM does not set the
// disk's MISSING flag.
func TestMissingPV_RealLVM(t *testing.T) {
	b := reallvm.NewFixture(t).OneAtATime()
	d := b.Start(t)
	v := d.MustCreate(t, b.Spec("whole", 8*lvm.MiB))
	d.MustActivate(t, v) // tags it as ready
	pv := reallvm.Admin(t, "lvs", "--noheadings", "-o", "devices", reallvm.Group)
	disks := slices.DeleteFunc(slices.Clone(reallvm.Disks()), func(disk string) bool { return strings.HasPrefix(pv, disk+"(") })
	label := reallvm.ReadAt(t, disks[0], 0, 4096)
	reallvm.Overwrite(t, disks[0], make([]byte, len(label)))
	putBack := sync.OnceFunc(func() { reallvm.Overwrite(t, disks[0], label) })
	defer putBack()
	b.Admin(t, "lvchange", "-an", reallvm.Group+"/"+v.ID.LV)
	d.MustActivate(t, v)
	hosttest.WantKind(t, "delete", d.Delete(t.Context(), v.ID), lvm.KindBusy) // LVM's commit would set the MISSING flag
	putBack()
	if g := b.ReadGroup(t); !reallvm.IsWhole(g) {
		t.Errorf("with the disk back the group is %+v", g)
	}
	d.MustRemove(t, v)
}
