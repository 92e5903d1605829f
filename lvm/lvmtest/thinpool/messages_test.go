package thinpool

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

func exists(node *lvmtest.Node, name string) bool {
	return slices.ContainsFunc(node.Group("vg-test").LVs, func(lv lvm.LV) bool { return lv.Name == name })
}

// restore sets the transaction that LVM's metadata has for the pool, as vgcfgrestore of other metadata does, and returns the one that it had.
func restore(node *lvmtest.Node, group string, to uint64) (had uint64) {
	node.Change(group, func(g *lvm.Group) {
		for i := range g.LVs {
			if pool := g.LVs[i].Thin; pool != nil {
				had, pool.TransactionID = pool.TransactionID, to
			}
		}
	})
	return had
}

// TestUncreatedThinVolumeIsRemoved: a driver and its lvm died before the pool got the message about a new thin volume, so that it cannot be
// activated. No request got it: the next start removes it.
func TestUncreatedThinVolumeIsRemoved(t *testing.T) {
	node := hosttest.NewNode()
	b := hosttest.OnFake(node).OneAtATime()
	for _, again := range []bool{true, false} {
		d := b.Start(t)
		v := d.MustCreate(t, b.Thin("v", 8*lvm.MiB, lvm.ID{}))
		d.Stop(t)
		node.LeaveUncounted(b.Group, v.ID.LV, false)
		d = b.Start(t)
		if exists(node, v.ID.LV) {
			t.Error("after the start it exists")
		}
		if again {
			now := d.MustCreate(t, b.Thin("v", 8*lvm.MiB, lvm.ID{}))
			if _, err := d.Activate(t.Context(), now.ID, now.UUID); err != nil || now.UUID == v.UUID {
				t.Errorf("created again: %+v, %v", now, err)
			}
		}
		hosttest.Must(t, d.Delete(t.Context(), v.ID))
		if len(d.Volumes(t)) > 0 {
			t.Error("it still exists")
		}
	}
	if lost := b.Lost(t); len(lost) > 0 {
		t.Errorf("the pool and LVM differ in %v", lost)
	}
}

// TestPoolTransactionIsRecovered: a driver and its lvm died between two messages to a pool about a thin volume or a snapshot: the pool then
// refuses every change. The next start, or the same request, recovers the pool.
func TestPoolTransactionIsRecovered(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		node, b, d := hosttest.Started(t)
		origin := d.MustCreate(t, b.Thin("origin", 8*lvm.MiB, lvm.ID{}))
		again := func() (made string) {
			t.Helper()
			if snapshot {
				return d.MustSnapshot(t, "s", origin.ID).ID.LV
			}
			return d.MustCreate(t, b.Thin("v", 8*lvm.MiB, lvm.ID{})).ID.LV
		}
		made := again()
		d.Stop(t)
		node.LeaveUncounted(b.Group, made, true)
		d = b.Start(t)
		again()
		d.MustCreate(t, b.Thin("another", 8*lvm.MiB, lvm.ID{}))
		b.DeleteAll(t, d)
		if lost := b.Lost(t); len(lost) > 0 {
			t.Errorf("the pool and LVM differ in %v", lost)
		}
	}
}

// TestMessagesOfOtherPoolsAreIgnored: the driver ignores the pending messages of an admin's pool.
func TestMessagesOfOtherPoolsAreIgnored(t *testing.T) {
	node, b, d := hosttest.Started(t)
	v := d.MustCreate(t, b.Thin("v", 8*lvm.MiB, lvm.ID{}))
	d.Stop(t)
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
	hosttest.Must(t, d.Delete(t.Context(), v.ID))
	ran := slices.DeleteFunc(node.Commands()[before:], func(c lvm.Command) bool { return c.Name == "fullreport" })
	if len(ran) != 1 || ran[0].Name != "lvremove" {
		t.Errorf("ran %+v", ran)
	}
}

// TestUntaggedPoolSpareIsRemoved: an lvm that was killed while it created its spare for pool metadata left a volume without a tag. The
// driver removes it when it creates the pool; an admin's volume that looks the same stays.
func TestUntaggedPoolSpareIsRemoved(t *testing.T) {
	node, b, d := hosttest.Started(t)
	b.Admin(t, "lvcreate", "-y", "-l", "1", "-n", "lvol0", b.Group)
	b.Admin(t, "lvcreate", "-y", "-l", "1", "-n", "lvol1", b.Group)
	node.LeaveSpare(b.Group, "lvol1")
	d.MustCreate(t, b.Thin("v", 8*lvm.MiB, lvm.ID{}))
	hosttest.FindLV(t, b.ReadGroup(t), "lvol0")
	if exists(node, "lvol1") {
		t.Error("the volume that LVM left still exists")
	}
	b.DeleteAll(t, d)
}

// TestMismatchedPoolKeepsItsVolumes: while LVM's metadata is of another state of the pool, the driver removes no volume or snapshot:
// LVM's transaction id would become the pool's, as if both had the same volumes.
func TestMismatchedPoolKeepsItsVolumes(t *testing.T) {
	node, b, d := hosttest.Started(t)
	v := d.MustCreate(t, b.Thin("v", 8*lvm.MiB, lvm.ID{}))
	s := d.MustSnapshot(t, "s", v.ID)
	id := restore(node, b.Group, 1)
	for what, err := range map[string]error{"volume": d.Delete(t.Context(), v.ID), "snapshot": d.DeleteSnapshot(t.Context(), s.ID)} {
		if want := fmt.Sprintf("transaction_id = 1 for thin pool %s/%s, and the pool itself has %d", b.Group, lvm.DefaultPool, id); lvm.KindOf(err) != lvm.KindBusy || !strings.Contains(err.Error(), want) {
			t.Errorf("the %s: %v, want %q", what, err, want)
		}
	}
	d.Counted(t, "creations", 0, func() {
		hosttest.Refused(t, "create a volume", lvm.KindInsufficientCapacity)(d.Create(t.Context(), b.Thin("new", 8*lvm.MiB, lvm.ID{})))
		hosttest.Refused(t, "clone", lvm.KindInsufficientCapacity)(d.Create(t.Context(), b.Thin("clone", 8*lvm.MiB, v.ID)))
		hosttest.Refused(t, "take a snapshot", lvm.KindInsufficientCapacity)(d.CreateSnapshot(t.Context(), lvm.SnapshotSpec{Name: "new", Source: v.ID}))
		hosttest.Refused(t, "take a group snapshot", lvm.KindInsufficientCapacity)(d.CreateGroupSnapshot(t.Context(), lvm.GroupSnapshotSpec{Name: "new", Sources: []lvm.ID{v.ID}}, func(context.Context, lvm.ID) (func(), error) { return func() {}, nil }))
		incoming := lvm.Incoming{Spec: b.Thin("incoming", 8*lvm.MiB, lvm.ID{}), Move: strings.Repeat("0", 32)}
		hosttest.Refused(t, "receive a volume", lvm.KindInsufficientCapacity)(d.Receive(t.Context(), incoming))
	})
	restore(node, b.Group, id)
	hosttest.Must(t, d.DeleteSnapshot(t.Context(), s.ID))
}
