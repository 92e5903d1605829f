package thinpool

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// newPoolDriver is a driver that removes a pool as soon as it finds the pool empty.
func newPoolDriver(t *testing.T, node *lvmtest.Node) *hosttest.Driver {
	t.Helper()
	return hosttest.StartDriver(t, node, lvm.Config{EmptyPoolsFor: time.Nanosecond, ReadyDelay: time.Hour})
}

// emptyPool returns a node whose one thin pool is empty.
func emptyPool(t *testing.T) (*lvmtest.Node, hosttest.Fixture, *hosttest.Driver) {
	t.Helper()
	node := hosttest.NewNode()
	b, d := hosttest.OnFake(node), newPoolDriver(t, node)
	hosttest.Must(t, d.Delete(t.Context(), d.MustCreate(t, b.Thin("v", 8*lvm.MiB, lvm.ID{})).ID))
	return node, b, d
}

// checkPools checks the pools once.
func checkPools(t testing.TB, d *hosttest.Driver) {
	t.Helper()
	hosttest.Must(t, d.ExtendThinPools(t.Context()))
}

func hasPool(node *lvmtest.Node) bool { return exists(node, lvm.DefaultPool) }

// TestEmptyPoolIsKept: an empty pool stays for the configured time, and for ever if the driver must not remove it.
func TestEmptyPoolIsKept(t *testing.T) {
	tag := func(from, to string) func(*lvm.Group) {
		return func(g *lvm.Group) {
			for i := range g.LVs {
				if j := slices.Index(g.LVs[i].Tags, from); j >= 0 && g.LVs[i].Thin != nil {
					g.LVs[i].Tags[j] = to
				}
			}
		}
	}
	for name, test := range map[string]struct {
		after  time.Duration
		change func(*lvm.Group)
	}{
		"for ever":          {0, func(*lvm.Group) {}},
		"not for long":      {time.Hour, func(*lvm.Group) {}},
		"an admin's":        {time.Nanosecond, tag("nodelvm.kind=pool", "admins")},
		"another cluster's": {time.Nanosecond, tag("nodelvm.cluster="+hosttest.Cluster, "nodelvm.cluster=another")},
		"a disk is missing": {time.Nanosecond, func(g *lvm.Group) { g.PVs[5].Missing, g.PVs[5].Device = true, "" }},
		"a disk has a copy": {time.Nanosecond, func(g *lvm.Group) {
			g.PVs[5].DuplicateDevices = []string{"/dev/fakeg", "/dev/fakex"}
			g.Problem = "doubled"
		}},
		"an admin's in it": {time.Nanosecond, func(g *lvm.Group) {
			g.LVs = append(g.LVs, lvm.LV{UUID: "a", Name: "theirs", Type: "thin", Pool: lvm.DefaultPool, Extents: 1})
		}},
		"a hidden one in it": {time.Nanosecond, func(g *lvm.Group) {
			g.LVs = append(g.LVs, lvm.LV{UUID: "a", Name: "theirs", Type: "thin", Pool: lvm.DefaultPool, Extents: 1, Hidden: true})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			node := hosttest.NewNode()
			d := hosttest.StartDriver(t, node, lvm.Config{EmptyPoolsFor: test.after})
			v := d.MustCreate(t, hosttest.OnFake(node).Thin("v", 8*lvm.MiB, lvm.ID{}))
			hosttest.Must(t, d.Delete(t.Context(), v.ID))
			node.Change("vg-test", test.change)
			d.Counted(t, "a check of the pool", 0, func() { checkPools(t, d) })
			if !hasPool(node) {
				t.Error("the driver removed the pool")
			}
		})
	}
}

// TestEmptyPoolOfAnotherStateIsKept: a pool is empty only if LVM's metadata is of its present state. After a restore of old metadata the pool may
// have volumes that LVM does not know.
func TestEmptyPoolOfAnotherStateIsKept(t *testing.T) {
	for _, active := range []bool{false, true} {
		node, b, d := emptyPool(t)
		if active {
			b.Admin(t, "lvchange", "-y", "-ay", b.Group+"/"+lvm.DefaultPool)
		}
		id := restore(node, b.Group, 1)
		if err := d.ExtendThinPools(t.Context()); lvm.KindOf(err) != lvm.KindBusy || !strings.Contains(err.Error(), "transaction_id") || !hasPool(node) {
			t.Errorf("active: %v: the pool exists: %v, and the error is %v", active, hasPool(node), err)
		}
		restore(node, b.Group, id)
		if checkPools(t, d); hasPool(node) {
			t.Errorf("active: %v: the pool still exists", active)
		}
	}
}

// TestHalfActivePoolIsRemoved: a driver and its lvm were killed while they activated a new pool, and no volume is requested any more.
func TestHalfActivePoolIsRemoved(t *testing.T) {
	node := hosttest.NewNode()
	b, d := hosttest.OnFake(node), newPoolDriver(t, node)
	node.Fail(lvmtest.Fault{Half: true})
	node.Before(func(argv []string) {
		if slices.Contains(argv, "thin-pool") {
			node.Fail(lvmtest.Fault{Killed: true}) // the next command, too
		}
	})
	if _, err := d.Create(t.Context(), b.Thin("v", 8*lvm.MiB, lvm.ID{})); err == nil || !hasPool(node) {
		t.Fatalf("the pool exists: %v, and the error is %v", hasPool(node), err)
	}
	hosttest.Must(t, d.Close(t.Context()))
	d = newPoolDriver(t, node)
	if checkPools(t, d); hasPool(node) {
		t.Error("the pool still exists")
	}
}

// TestAdminCreatesDuringPoolRemoval: a volume that an admin creates in a pool while the command that removes the pool waits for LVM's
// lock stays, and so does the pool.
func TestAdminCreatesDuringPoolRemoval(t *testing.T) {
	node, _, d := emptyPool(t)
	asked := false
	node.Before(func(argv []string) {
		if argv[0] == "lvremove" && !asked {
			asked = true
			node.Change("vg-test", func(g *lvm.Group) {
				g.LVs = append(g.LVs, lvm.LV{UUID: "a", Name: "theirs", Type: "thin", Pool: lvm.DefaultPool, Extents: 1, Segments: []lvm.Segment{{Extents: 1, Type: "thin"}}})
				g.Seqno++
			})
		}
	})
	if err := d.ExtendThinPools(t.Context()); err == nil || !asked {
		t.Errorf("the driver reports that it removed the pool: %v", err)
	}
	if !hasPool(node) || !exists(node, "theirs") {
		t.Errorf("the group has %+v", node.Group("vg-test").LVs)
	}
	checkPools(t, d)
}

// TestCreateDuringPoolRemoval: a volume that is requested while the driver removes its pool waits for that, and gets its own pool.
func TestCreateDuringPoolRemoval(t *testing.T) {
	node, b, d := emptyPool(t)
	wanted, made := make(chan struct{}), make(chan error, 1)
	node.Before(func(argv []string) {
		if argv[0] == "lvremove" {
			node.Before(nil)
			go func() {
				close(wanted)
				_, err := d.Create(t.Context(), b.Thin("w", 8*lvm.MiB, lvm.ID{}))
				made <- err
			}()
			<-wanted
		}
	})
	hosttest.Must(t, d.ExtendThinPools(t.Context()))
	select {
	case <-wanted:
		hosttest.Must(t, <-made)
	default:
		t.Fatal("the driver did not remove the pool")
	}
	checkPools(t, d)
	if all := d.Volumes(t); len(all) != 1 || !hasPool(node) {
		t.Errorf("the volumes are %+v", all)
	}
}

// TestEmptyPoolRemovalFails: however the removal fails, the pool is usable or removed, and the next check removes it.
func TestEmptyPoolRemovalFails(t *testing.T) {
	for _, fault := range []lvmtest.Fault{{}, {Late: true}, {Killed: true}, {Late: true, Killed: true}, {Half: true}} {
		for _, next := range []string{"look", "create"} {
			t.Run(fmt.Sprintf("%+v %s", fault, next), func(t *testing.T) {
				node := hosttest.NewNode()
				b := hosttest.OnFake(node)
				d := newPoolDriver(t, node)
				whole := d.MustCapacity(t, b.Class())
				v := d.MustCreate(t, b.Thin("v", 8*lvm.MiB, lvm.ID{}))
				hosttest.Must(t, d.Delete(t.Context(), v.ID))
				node.Fail(fault)
				err := d.ExtendThinPools(t.Context())
				if !node.Tripped() || (err == nil) == hasPool(node) {
					t.Errorf("the pool exists: %v, and the error is %v", hasPool(node), err)
				}
				hosttest.Must(t, d.Close(t.Context()))
				d = newPoolDriver(t, node)
				if next == "create" {
					w := d.MustCreate(t, b.Thin("w", 8*lvm.MiB, lvm.ID{}))
					d.MustActivate(t, w)
					hosttest.Must(t, d.Delete(t.Context(), w.ID))
				}
				checkPools(t, d)
				if c := d.MustCapacity(t, b.Class()); c != whole || hasPool(node) {
					t.Errorf("capacity %+v, at first %+v", c, whole)
				}
			})
		}
	}
}
