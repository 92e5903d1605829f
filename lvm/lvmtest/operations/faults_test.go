package operations

import (
	"fmt"
	"sync"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// TestExtentsTakenBeforeCommand: an admin allocates the planned extents between the driver's read and its command.
func TestExtentsTakenBeforeCommand(t *testing.T) {
	node, b, d := hosttest.StartedWith(t, lvm.Config{})
	var once sync.Once
	node.Before(func([]string) {
		once.Do(func() {
			node.Change("vg-test", func(g *lvm.Group) {
				g.LVs = append(g.LVs, lvm.LV{UUID: "admin", Name: "admin", Type: "linear", Extents: 3, Segments: []lvm.Segment{
					{Extents: 3, Type: "linear", Areas: []lvm.Area{{PV: g.PVs[0].UUID, Start: 0}}},
				}})
			})
		})
	})
	d.Counted(t, "create", 3, func() {
		if v := d.MustCreate(t, b.Spec("a", 8*lvm.MiB)); v.Size != 8*lvm.MiB {
			t.Errorf("created %+v", v)
		}
	})
}

// TestFaultAtEachCommand fails each LVM command in turn, in each way, in a life with every operation. It repeats what failed, every
// other time after a restart. In the end no volume is left, and no device is suspended.
func TestFaultAtEachCommand(t *testing.T) {
	for _, layout := range []lvm.Layout{lvm.LayoutLinear, lvm.LayoutStriped, lvm.LayoutRAID1, lvm.LayoutThin} {
		for _, fault := range []lvmtest.Fault{{}, {Late: true}, {Killed: true}, {Late: true, Killed: true}, {Half: true}, {MessagesCounted: true}} {
			for call, tripped := 0, true; tripped; call++ {
				fault.Call = call
				t.Run(fmt.Sprintf("%s %+v", layout, fault), func(t *testing.T) { tripped = faultyLife(t, layout, fault) })
			}
		}
	}
}

func faultyLife(t *testing.T, layout lvm.Layout, fault lvmtest.Fault) (tripped bool) {
	node, b, d := hosttest.Started(t)
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
			c, err = d.Create(t.Context(), b.Thin("copy", 24*lvm.MiB, sn.ID))
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
	d.WaitWiped(t)
	tripped = node.Tripped()
	if lost := b.Lost(t); len(lost) > 0 {
		t.Errorf("the pool and LVM differ in the devices %v", lost)
	}
	for _, lv := range b.ReadGroup(t).LVs {
		if !lv.Hidden && lv.Name != lvm.DefaultPool {
			t.Errorf("%s is left", lv.Name)
		}
	}
	return tripped
}
