//go:build reallvm

package diskfailure

import (
	"fmt"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// TestDiskLostWithGroup_RealLVM: a disk that is a whole group fails while its volume is active, or is gone. The running driver and
// the next one see the group as absent, without capacity, and name the device that cannot be read; when the disk is back, so are group
// and volume.
func TestDiskLostWithGroup_RealLVM(t *testing.T) {
	b := newDiskLossFixture(t)
	reallvm.Admin(t, "vgreduce", vanishGroup, reallvm.Mapped(t, b.disks[0]))
	d := b.Start(t)
	v := d.MustCreate(t, b.Light("only", 32*lvm.MiB))
	d.MustActivate(t, v) // tags it as ready
	whole := d.MustCapacity(t, b.Class())
	lose := func(what string, away func(testing.TB) func(), unread int) {
		t.Helper()
		putBack := away(t)
		t.Cleanup(putBack)
		for _, which := range []string{"running", "next"} {
			lost := waitForGroup(t, what, d, v.ID.VG, false)
			if len(lost.Unread) != unread {
				t.Errorf("%s: for the %s driver, unreadable are %q", what, which, lost.Unread)
			}
			if c := d.MustCapacity(t, b.Class()); c != (lvm.Capacity{}) {
				t.Errorf("%s: the %s driver has the capacity %+v", what, which, c)
			}
			if found, err := d.Health(t.Context()); err != nil || len(found) > 0 {
				t.Errorf("%s: for the %s driver, the readable groups have the conditions %+v, %v", what, which, found, err)
			}
			d = b.Start(t)
		}
		putBack()
		waitForGroup(t, what+" and is back", d, v.ID.VG, true)
		if found, err := d.Lookup(t.Context(), v.ID); err != nil || found.UUID != v.UUID {
			t.Errorf("%s and is back: found %+v, %v", what, found, err)
		}
		if c := d.MustCapacity(t, b.Class()); c != whole {
			t.Errorf("%s and is back: the capacity is %+v, before %+v", what, c, whole)
		}
	}
	lose("it fails", b.fail, 1)
	reallvm.Admin(t, "lvchange", "-an", vanishGroup+"/"+v.ID.LV) // else its device cannot be removed
	lose("it is pulled", b.pull, 0)
	d.MustRemove(t, v)
}

// waitForGroup waits until the driver's reading has the group, or lacks it.
func waitForGroup(t *testing.T, what string, d *hosttest.Driver, vg lvm.VGUUID, want bool) lvm.ManagedVolumes {
	t.Helper()
	var managed lvm.ManagedVolumes
	wait.For(t, 30*time.Second, fmt.Sprintf("%s: that the group is on the node becomes %v", what, want), func() (done bool) {
		var err error
		managed, err = d.ManagedVolumes(t.Context())
		hosttest.Must(t, err)
		return managed.Groups[vg] == want
	})
	return managed
}
