package lvmtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// newPoolDriver is a driver that removes a pool as soon as it finds the pool empty.
func newPoolDriver(t *testing.T, node *Node) *Driver {
	d := node.driver(t, lvm.Config{EmptyPoolsFor: time.Nanosecond, ReadyDelay: time.Hour})
	return d
}

// checkPools checks the pools once.
func (d *Driver) checkPools(t testing.TB) {
	t.Helper()
	must(t, d.ExtendThinPools(t.Context()))
}

func (n *Node) hasPool() bool {
	return slices.ContainsFunc(n.group("vg-test").read().LVs, func(lv lvm.LV) bool { return lv.Name == lvm.DefaultPool })
}

// TestEmptyPoolIsRemoved: the driver removes a pool that it extended for a large volume when it is empty, which frees the group's
// extents; the next thin volume creates another one.
func TestEmptyPoolIsRemoved(t *testing.T) {
	node := newNode()
	b := fakeFixture(node)
	d := newPoolDriver(t, node)
	whole := d.capacity(t, b.class())
	v := d.create(t, b.thin("large", 800*lvm.MiB, lvm.ID{}))
	sn := d.snapshot(t, "s", v.ID)
	d.checkPools(t)
	must(t, d.Delete(t.Context(), v.ID))
	d.checkPools(t)
	if _, err := d.LookupSnapshot(t.Context(), sn.ID); err != nil || !node.hasPool() {
		t.Fatalf("the driver changed a pool with a snapshot: %v", err)
	}
	must(t, d.DeleteSnapshot(t.Context(), sn.ID))
	d.counted(t, "removal of the pool", 1, func() { d.checkPools(t) })
	if c := d.capacity(t, b.class()); c != whole || node.hasPool() {
		t.Errorf("capacity %+v, at first %+v", c, whole)
	}
	d.counted(t, "a check without a pool", 0, func() { d.checkPools(t) })
	d.create(t, b.thin("next", 8*lvm.MiB, lvm.ID{}))
}

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
		"another cluster's": {time.Nanosecond, tag("nodelvm.cluster="+Cluster, "nodelvm.cluster=another")},
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
			node := newNode()
			d := node.driver(t, lvm.Config{EmptyPoolsFor: test.after})
			v := d.create(t, fakeFixture(node).thin("v", 8*lvm.MiB, lvm.ID{}))
			must(t, d.Delete(t.Context(), v.ID))
			node.Change("vg-test", test.change)
			d.counted(t, "a check of the pool", 0, func() { d.checkPools(t) })
			if !node.hasPool() {
				t.Error("the driver removed the pool")
			}
		})
	}
}

// TestAdminCreatesDuringPoolRemoval: a volume that an admin creates in a pool while the command that removes the pool waits for LVM's
// lock stays, and so does the pool.
func TestAdminCreatesDuringPoolRemoval(t *testing.T) {
	node := newNode()
	d := newPoolDriver(t, node)
	v := d.create(t, fakeFixture(node).thin("v", 8*lvm.MiB, lvm.ID{}))
	must(t, d.Delete(t.Context(), v.ID))
	asked := false
	node.Before = func(argv []string) {
		if argv[0] == "lvremove" && !asked {
			asked = true
			g := node.group("vg-test")
			g.add(lvm.LV{UUID: "a", Name: "theirs", Pool: lvm.DefaultPool, Segments: []lvm.Segment{{Extents: 1, Type: "thin"}}})
			g.commit()
		}
	}
	if err := d.ExtendThinPools(t.Context()); err == nil || !asked {
		t.Errorf("the driver reports that it removed the pool: %v", err)
	}
	if lvs := node.group("vg-test").read().LVs; !node.hasPool() || !slices.ContainsFunc(lvs, func(lv lvm.LV) bool { return lv.Name == "theirs" }) {
		t.Errorf("the group has %+v", lvs)
	}
	must(t, d.ExtendThinPools(t.Context()))
}

// TestCreateDuringPoolRemoval: a volume that is requested while the driver removes its pool waits for that, and gets its own pool.
func TestCreateDuringPoolRemoval(t *testing.T) {
	node := newNode()
	b := fakeFixture(node)
	d := newPoolDriver(t, node)
	v := d.create(t, b.thin("v", 8*lvm.MiB, lvm.ID{}))
	must(t, d.Delete(t.Context(), v.ID))
	wanted, made := make(chan struct{}), make(chan error, 1)
	node.Before = func(argv []string) {
		if argv[0] == "lvremove" {
			node.Before = nil
			go func() {
				close(wanted)
				_, err := d.Create(t.Context(), b.thin("w", 8*lvm.MiB, lvm.ID{}))
				made <- err
			}()
			<-wanted
		}
	}
	must(t, d.ExtendThinPools(t.Context()))
	select {
	case <-wanted:
		must(t, <-made)
	default:
		t.Fatal("the driver did not remove the pool")
	}
	d.checkPools(t)
	if all := d.volumes(t); len(all) != 1 || !node.hasPool() {
		t.Errorf("the volumes are %+v", all)
	}
}

// TestEmptyPoolRemovalFails: however the removal fails, the pool is usable or removed, and the next check removes it.
func TestEmptyPoolRemovalFails(t *testing.T) {
	for _, fault := range []Fault{{}, {Late: true}, {Killed: true}, {Late: true, Killed: true}, {Half: true}} {
		for _, next := range []string{"look", "create"} {
			t.Run(fmt.Sprintf("%+v %s", fault, next), func(t *testing.T) {
				node := newNode()
				b := fakeFixture(node)
				d := newPoolDriver(t, node)
				whole := d.capacity(t, b.class())
				v := d.create(t, b.thin("v", 8*lvm.MiB, lvm.ID{}))
				must(t, d.Delete(t.Context(), v.ID))
				node.Fail(fault)
				err := d.ExtendThinPools(t.Context())
				if !node.Tripped() || (err == nil) == node.hasPool() {
					t.Errorf("the pool exists: %v, and the error is %v", node.hasPool(), err)
				}
				must(t, d.Close(t.Context()))
				d = newPoolDriver(t, node)
				if next == "create" {
					w := d.create(t, b.thin("w", 8*lvm.MiB, lvm.ID{}))
					_, err := d.Activate(t.Context(), w.ID, w.UUID)
					must(t, err)
					must(t, d.Delete(t.Context(), w.ID))
				}
				d.checkPools(t)
				if c := d.capacity(t, b.class()); c != whole || node.hasPool() {
					t.Errorf("capacity %+v, at first %+v", c, whole)
				}
			})
		}
	}
}

// TestPoolRemovalNamesCommit: the command that removes a pool names the commit that the driver read, and only that pool.
func TestPoolRemovalNamesCommit(t *testing.T) {
	node := newNode()
	d := newPoolDriver(t, node)
	v := d.create(t, fakeFixture(node).thin("v", 8*lvm.MiB, lvm.ID{}))
	must(t, d.Delete(t.Context(), v.ID))
	seqno := node.group("vg-test").Seqno
	d.checkPools(t)
	commands := node.Commands()
	last := strings.Join(commands[len(commands)-1].Args, " ")
	if want := fmt.Sprintf("vg_seqno=%d && lv_uuid=", seqno); !strings.Contains(last, want) || !strings.HasSuffix(last, " -- vg-test/"+lvm.DefaultPool) {
		t.Errorf("ran lvremove %s, want it to say %q", last, want)
	}
}

// TestExtentsOfRemovedPoolAreNotKnownZero: the extents of a removed pool do not count as zeroed: a raw block volume shows no old data.
func TestExtentsOfRemovedPoolAreNotKnownZero(t *testing.T) {
	node := newNode()
	b, k := fakeFixture(node), newDirtyKernel(node)
	d := k.start(t, t.TempDir())
	all := d.create(t, b.raw("all", lvm.Extents(d.capacity(t, b.class()).Largest/ExtentSize)))
	must(t, d.Delete(t.Context(), all.ID))
	d.waitWiped(t) // the driver knows that all free extents are zero
	v := d.create(t, b.thin("v", 40*lvm.MiB, lvm.ID{}))
	k.write(lvm.DefaultPool + "_tdata")
	must(t, d.Delete(t.Context(), v.ID))
	d.checkPools(t)
	before := k.count()
	all = d.create(t, b.raw("all", lvm.Extents(d.capacity(t, b.class()).Largest/ExtentSize)))
	if n, zeroed := k.shows(all.ID.LV, nil), k.count()-before; n > 0 || zeroed == 0 {
		t.Errorf("%d extents are not zero, and %d were zeroed", n, zeroed)
	}
}
