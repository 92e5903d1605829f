//go:build reallvm

package diskfailure

import (
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

// TestDiskLostWithGroup_RealLVM: a disk that is a whole group fails while its volume is active, or is gone. The running driver and
// the next one see the group as absent, and name the device that cannot be read; when the disk is back, so are group and volume.
func TestDiskLostWithGroup_RealLVM(t *testing.T) {
	b := newDiskLossFixture(t)
	reallvm.Admin(t, "vgreduce", vanishGroup, reallvm.Mapped(t, b.disks[0]))
	d := b.Start(t)
	v := d.MustCreate(t, b.Light("only", 32*lvm.MiB))
	for what, away := range map[string]func(testing.TB) func(){"it fails": b.fail, "it is pulled": b.pull} {
		if what == "it is pulled" {
			reallvm.Admin(t, "lvchange", "-an", vanishGroup+"/"+v.ID.LV)
		} else {
			_, err := d.Activate(t.Context(), v.ID, v.UUID)
			hosttest.Must(t, err)
		}
		putBack := away(t)
		for range 2 {
			lost := waitForGroup(t, what, d, v.ID.VG, false)
			if named := len(lost.Unread) > 0; named != (what == "it fails") {
				t.Errorf("%s: unreadable are %q", what, lost.Unread)
			}
			if found, err := d.Health(t.Context()); err != nil || len(found) > 0 {
				t.Errorf("%s: the readable groups have the conditions %+v, %v", what, found, err)
			}
			d = b.Start(t)
		}
		putBack()
		waitForGroup(t, what+" and is back", d, v.ID.VG, true)
		if found, err := d.Lookup(t.Context(), v.ID); err != nil || found.UUID != v.UUID {
			t.Errorf("%s and is back: found %+v, %v", what, found, err)
		}
	}
	hosttest.Must(t, d.Delete(t.Context(), v.ID))
	d.WaitWiped(t)
}

// waitForGroup waits until the driver's cached reading has the group, or lacks it.
func waitForGroup(t *testing.T, what string, d *hosttest.Driver, vg lvm.VGUUID, want bool) lvm.ManagedVolumes {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		held, err := d.ManagedVolumes(t.Context())
		hosttest.Must(t, err)
		if held.Groups[vg] == want {
			return held
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: that the group is on the node stays %v", what, !want)
		}
	}
}
