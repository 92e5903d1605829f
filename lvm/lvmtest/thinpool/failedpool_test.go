package thinpool

import (
	"fmt"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// TestFailedPool: a thin pool takes no writes until it is activated again. The driver does so when it activates one of its volumes, unless another
// is in use, or LVM could not activate the pool afterwards.
func TestFailedPool(t *testing.T) {
	start := func(t *testing.T) (node *lvmtest.Node, b hosttest.Fixture, d *hosttest.Driver, v [2]lvm.Volume) {
		t.Helper()
		node, b, d = hosttest.Started(t)
		for i := range v {
			v[i] = d.MustCreate(t, b.Thin(fmt.Sprint("v", i), 8*lvm.MiB, lvm.ID{}))
			d.MustActivate(t, v[i])
		}
		pool := hosttest.FindLV(t, node.Group(b.Group), lvm.DefaultPool)
		path, active, err := node.Kernel().Device(lvmtest.DeviceUUID(string(b.ReadGroup(t).UUID), pool.UUID) + "-tpool")
		if hosttest.Must(t, err); !active {
			t.Fatal("the pool is not active")
		}
		node.SetStatus(path, "thin-pool", fmt.Sprintf("%d 10/1000 1/2000 - ro discard_passdown error_if_no_space needs_check 128", pool.Thin.TransactionID))
		wantFailed(t, d, v, true)
		return node, b, d, v
	}
	works := func(t *testing.T, d *hosttest.Driver, v [2]lvm.Volume) {
		t.Helper()
		d.MustActivate(t, v[0])
		wantFailed(t, d, v, false)
		for _, v := range v {
			d.MustDevice(t, v)
		}
	}
	refuses := func(t *testing.T, d *hosttest.Driver, v [2]lvm.Volume) {
		t.Helper()
		device := d.MustDevice(t, v[1])
		d.Counted(t, "an activation in a pool that the driver may not deactivate", 0, func() {
			if now := d.MustActivate(t, v[1]); now != device {
				t.Errorf("the device was %s and is %s", device, now)
			}
		})
	}
	t.Run("unused", func(t *testing.T) {
		_, _, d, v := start(t)
		works(t, d, v)
	})
	t.Run("only the pool itself is active", func(t *testing.T) {
		_, b, d, v := start(t)
		for _, v := range v {
			b.Admin(t, "lvchange", "-an", b.Group+"/"+v.ID.LV)
		}
		d.MustActivate(t, v[0])
		wantFailed(t, d, v, false)
	})
	t.Run("a volume in use", func(t *testing.T) {
		node, _, d, v := start(t)
		release := node.Hold(d.MustDevice(t, v[0]))
		refuses(t, d, v)
		release()
		works(t, d, v)
	})
	t.Run("another transaction", func(t *testing.T) {
		node, b, d, v := start(t)
		same := restore(node, b.Group, 0)
		refuses(t, d, v)
		restore(node, b.Group, same)
		works(t, d, v)
	})
	t.Run("a disk is missing", func(t *testing.T) {
		node, b, d, v := start(t)
		miss := func(is bool) {
			node.Change(b.Group, func(g *lvm.Group) {
				for i := range g.PVs {
					g.PVs[i].Missing = is
				}
			})
		}
		miss(true)
		refuses(t, d, v)
		miss(false)
		works(t, d, v)
	})
}

// wantFailed checks whether Health reports of each volume that its pool has failed.
func wantFailed(t *testing.T, d *hosttest.Driver, volumes [2]lvm.Volume, want bool) {
	t.Helper()
	found := d.Conditions(t)
	for _, v := range volumes {
		if is := hosttest.HasCondition(found, lvm.ConditionThinPoolFailed, v.UUID); is != want {
			t.Errorf("%s is on a failed pool: %v; conditions %+v", v.ID.LV, is, found)
		}
	}
}
