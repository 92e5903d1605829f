package lvmtest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestFaultAtEachCommandOfLifecycle fails each LVM command in turn, in each way, in a life with every operation. It repeats what failed, every
// other time after a restart. In the end no volume is left, and no device is suspended.
func TestFaultAtEachCommandOfLifecycle(t *testing.T) {
	for _, layout := range []lvm.Layout{lvm.LayoutLinear, lvm.LayoutStriped, lvm.LayoutRAID1, lvm.LayoutThin} {
		for _, fault := range []Fault{{}, {Late: true}, {Killed: true}, {Late: true, Killed: true}, {Half: true}, {MessagesCounted: true}} {
			for call, tripped := 0, true; tripped; call++ {
				fault.Call = call
				t.Run(fmt.Sprintf("%s %+v", layout, fault), func(t *testing.T) { tripped = faultyLife(t, layout, fault) })
			}
		}
	}
}

func faultyLife(t *testing.T, layout lvm.Layout, fault Fault) (tripped bool) {
	node, b, d := started(t)
	node.Fail(fault)
	twice := func(what string, do func() error) {
		t.Helper()
		err := do()
		if err == nil {
			return
		}
		if fault.Call%2 == 1 {
			d = b.Start(t)
		}
		if second := do(); second != nil {
			t.Fatalf("%s failed twice: %v; then %v", what, err, second)
		}
	}
	spec := lvm.Spec{Name: "v", Class: lvm.Class{Group: b.Group, Layout: layout}, Required: 8 * lvm.MiB}
	var v lvm.Volume
	var device string
	twice("create", func() (err error) { v, err = d.Create(t.Context(), spec); return err })
	twice("activate", func() (err error) { device, err = d.Activate(t.Context(), v.ID, v.UUID); return err })
	var larger lvm.Volume
	twice("extend", func() (err error) { larger, err = d.Extend(t.Context(), v.ID, 16*lvm.MiB, 0); return err })
	if larger.Size != 16*lvm.MiB {
		t.Errorf("extended to %s", larger.Size)
	}
	if layout == lvm.LayoutThin {
		var sn lvm.Snapshot
		twice("snapshot", func() (err error) {
			sn, err = d.CreateSnapshot(t.Context(), lvm.SnapshotSpec{Name: "s", Source: v.ID})
			return err
		})
		var c lvm.Volume
		twice("copy", func() (err error) {
			c, err = d.Create(t.Context(), b.thin("copy", 24*lvm.MiB, sn.ID))
			return err
		})
		if b.Suspended(t, device) {
			t.Error("the origin is suspended")
		}
		twice("delete snapshot", func() error { return d.DeleteSnapshot(t.Context(), sn.ID) })
		twice("delete copy", func() error { return d.Delete(t.Context(), c.ID) })
	}
	if b.Suspended(t, device) {
		t.Error("the volume is suspended")
	}
	twice("delete", func() error { return d.Delete(t.Context(), v.ID) })
	d.waitWiped(t)
	tripped = node.Tripped()
	if lost := b.Lost(t); len(lost) > 0 {
		t.Errorf("the pool and LVM differ in the devices %v", lost)
	}
	for _, lv := range b.group(t).LVs {
		if !lv.Hidden && lv.Name != lvm.DefaultPool {
			t.Errorf("%s is left", lv.Name)
		}
	}
	return tripped
}

// cutOff leaves a thin volume or snapshot as a driver and its lvm do that are killed before the pool counts its messages; with
// made, after the pool has created the device.
func (n *Node) cutOff(group, name string, made bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	g := n.group(group)
	lv := g.find(name)
	lv.Tags[slices.Index(lv.Tags, "nodelvm.state=ready")] = "nodelvm.state=creating"
	n.lower(g, name, "")
	pool := g.find(lv.Pool)
	n.queue(pool, "create "+name)
	if !made {
		delete(n.kernelOf(pool).devices, n.number(g, lv))
	}
}

// TestUncreatedThinVolumeIsRemoved: a driver and its lvm died before the pool got the message about a new thin volume, so that it cannot be
// activated. No request got it: the next start removes it. If the driver can read only LVM's report, which does not show that,
// the same request creates it again, and its deletion is possible.
func TestUncreatedThinVolumeIsRemoved(t *testing.T) {
	for _, indirect := range []bool{false, true} {
		node := newNode()
		b := fakeFixture(node).oneAtATime()
		if indirect {
			node.Indirect()
		}
		for _, again := range []bool{true, false} {
			d := b.Start(t)
			v := d.create(t, b.thin("v", 8*lvm.MiB, lvm.ID{}))
			d.close(t)
			node.cutOff(b.Group, v.ID.LV, false)
			d = b.Start(t)
			if there := node.group(b.Group).find(v.ID.LV) != nil; there != indirect {
				t.Errorf("indirect %t: after the start it exists: %t", indirect, there)
			}
			if again {
				now := d.create(t, b.thin("v", 8*lvm.MiB, lvm.ID{}))
				if _, err := d.Activate(t.Context(), now.ID, now.UUID); err != nil || now.UUID == v.UUID {
					t.Errorf("created again: %+v, %v", now, err)
				}
			}
			must(t, d.Delete(t.Context(), v.ID))
			if len(d.volumes(t)) > 0 {
				t.Error("it still exists")
			}
		}
		if lost := b.Lost(t); len(lost) > 0 {
			t.Errorf("the pool and LVM differ in %v", lost)
		}
	}
}

// TestPoolTransactionIsRecovered: a driver and its lvm died between two messages to a pool about a thin volume or a snapshot: the pool then
// refuses every change. The next start, or the same request, recovers the pool.
func TestPoolTransactionIsRecovered(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		node, b, d := started(t)
		origin := d.create(t, b.thin("origin", 8*lvm.MiB, lvm.ID{}))
		again := func() (made string) {
			t.Helper()
			if snapshot {
				return d.snapshot(t, "s", origin.ID).ID.LV
			}
			return d.create(t, b.thin("v", 8*lvm.MiB, lvm.ID{})).ID.LV
		}
		made := again()
		d.close(t)
		node.cutOff(b.Group, made, true)
		d = b.Start(t)
		again()
		d.create(t, b.thin("another", 8*lvm.MiB, lvm.ID{}))
		b.deleteAll(t, d)
		if lost := b.Lost(t); len(lost) > 0 {
			t.Errorf("the pool and LVM differ in %v", lost)
		}
	}
}

// TestMessagesOfOtherPoolsAreIgnored: the driver ignores the pending messages of an admin's pool.
func TestMessagesOfOtherPoolsAreIgnored(t *testing.T) {
	node, b, d := started(t)
	v := d.create(t, b.thin("v", 8*lvm.MiB, lvm.ID{}))
	d.close(t)
	node.Change(b.Group, func(g *lvm.Group) {
		for i := range g.LVs {
			if g.LVs[i].Thin != nil {
				g.LVs[i].Tags = nil
			}
		}
	})
	b.Leave(t, "delete 99")
	before := len(node.Commands())
	d = b.Start(t)
	must(t, d.Delete(t.Context(), v.ID))
	ran := slices.DeleteFunc(node.Commands()[before:], func(c lvm.Command) bool { return c.Name == "fullreport" })
	if len(ran) != 1 || ran[0].Name != "lvremove" {
		t.Errorf("ran %+v", ran)
	}
}

// TestUntaggedPoolSpareIsRemoved: an lvm that was killed while it created its spare for pool metadata left a volume without a tag. The
// driver removes it when it creates the pool; an admin's volume that looks the same stays.
func TestUntaggedPoolSpareIsRemoved(t *testing.T) {
	node, b, d := started(t)
	b.Admin(t, "lvcreate", "-y", "-l", "1", "-n", "lvol0", b.Group)
	b.Admin(t, "lvcreate", "-y", "-l", "1", "-n", "lvol1", b.Group)
	node.spares[find(t, b.group(t), "lvol1").UUID] = true
	d.create(t, b.thin("v", 8*lvm.MiB, lvm.ID{}))
	find(t, b.group(t), "lvol0")
	if slices.ContainsFunc(b.group(t).LVs, func(lv lvm.LV) bool { return lv.Name == "lvol1" }) {
		t.Error("the volume that LVM left still exists")
	}
	b.deleteAll(t, d)
}
