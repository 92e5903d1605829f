package conformance

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// testShape creates, extends and deletes a volume of one layout.
func testShape(t *testing.T, b hosttest.Fixture, s hosttest.Shape) {
	d := b.Start(t)
	class := b.In(s.Class)
	class.Wipe = lvm.WipeNone
	before := d.MustCapacity(t, class)
	spec := lvm.Spec{Name: "shaped", Class: class, Required: 1}
	var v lvm.Volume
	d.Counted(t, "create", 2, func() { v = d.MustCreate(t, spec) })
	if v.Size != s.Row() || v.Class != class || v.State != lvm.StateReady {
		t.Errorf("created %+v, want %s of %+v", v, s.Row(), class)
	}
	if _, active, err := d.Device(v.ID, v.UUID); err != nil || !active {
		t.Errorf("its device: active %v, %v", active, err)
	}
	b.CheckLegs(t, v, s.Legs)
	d.Counted(t, "create again", 0, func() {
		if again := d.MustCreate(t, spec); again != v {
			t.Errorf("created again: %+v, want %+v", again, v)
		}
		_, err := d.Create(t.Context(), b.Spec("shaped", 1))
		hosttest.WantKind(t, "a linear volume of its name", err, lvm.KindExists)
		wider := spec
		if wider.Class.Stripes > 0 {
			wider.Class.Stripes++
		} else {
			wider.Class.Mirrors++
		}
		_, err = d.Create(t.Context(), wider)
		hosttest.WantKind(t, "one with more legs", err, lvm.KindExists)
	})
	v = testGrow(t, d, v, s.Row())
	b.CheckLegs(t, v, s.Legs)
	d = b.Start(t)
	if volumes, err := d.List(t.Context()); err != nil || !slices.Equal(volumes, []lvm.Volume{v}) {
		t.Errorf("after a restart there is %+v, %v; want %+v", volumes, err, v)
	}
	testLargest(t, d, lvm.Spec{Name: "the rest", Class: class}, s)
	hosttest.Must(t, d.Delete(t.Context(), v.ID))
	d.WaitWiped(t)
	if after := d.MustCapacity(t, class); after != before {
		t.Errorf("capacity after all is deleted %+v, before %+v", after, before)
	}
}

// testGrow extends a volume by one byte, which takes a row, and then requests its present size.
func testGrow(t *testing.T, d *hosttest.Driver, v lvm.Volume, row lvm.Bytes) lvm.Volume {
	t.Helper()
	want := v
	want.Size += row
	d.Counted(t, "extension", 3, func() {
		grown, err := d.Extend(t.Context(), v.ID, v.Size+1, 0)
		hosttest.Must(t, err)
		if grown != want {
			t.Errorf("extended by a byte: %+v, want %+v", grown, want)
		}
	})
	d.Counted(t, "extension to the present size", 0, func() {
		for _, size := range []lvm.Bytes{0, 1, v.Size, want.Size} {
			if same, err := d.Extend(t.Context(), v.ID, size, 0); err != nil || same != want {
				t.Errorf("extended to %d bytes: %+v, %v; want %+v", size, same, err, want)
			}
		}
		for _, bad := range []struct{ required, limit lvm.Bytes }{{-1, 0}, {1<<63 - 1, 0}, {want.Size + 1, want.Size + 2}, {want.Size + row, want.Size}} {
			_, err := d.Extend(t.Context(), v.ID, bad.required, bad.limit)
			hosttest.WantKind(t, fmt.Sprintf("extension to %d bytes, at most %d", bad.required, bad.limit), err, lvm.KindOutOfRange)
		}
	})
	if found, err := d.Lookup(t.Context(), v.ID); err != nil || found != want {
		t.Errorf("after its extension it is found as %+v, %v; want %+v", found, err, want)
	}
	return want
}

// testLargest requests the largest possible volume, and one byte more.
func testLargest(t *testing.T, d *hosttest.Driver, spec lvm.Spec, s hosttest.Shape) {
	t.Helper()
	spec.Class.Wipe = lvm.WipeNone // the volume holds nothing
	c := d.MustCapacity(t, spec.Class)
	if c.Largest < s.Row() || c.Largest%s.Row() != 0 || c.Available < c.Largest {
		t.Errorf("%s: the capacity is %+v", s, c)
	}
	spec.Required = c.Largest + 1
	d.Counted(t, "a refused create", 0, func() {
		_, err := d.Create(t.Context(), spec)
		hosttest.WantKind(t, "one byte more than the largest", err, lvm.KindInsufficientCapacity)
	})
	spec.Required = c.Largest
	v := d.MustCreate(t, spec)
	if v.Size != c.Largest {
		t.Errorf("requested the largest, %s, got %s", c.Largest, v.Size)
	}
	hosttest.Must(t, d.Delete(t.Context(), v.ID))
	d.WaitWiped(t)
}

// testExtendLinear: a linear volume extends onto any free extents, up to the last one.
func testExtendLinear(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	v := d.MustCreate(t, b.Light("grows", lvmtest.ExtentSize))
	d.MustCreate(t, b.Light("in the way", lvmtest.ExtentSize))
	v = testGrow(t, d, v, lvmtest.ExtentSize)
	_, err := d.Extend(t.Context(), lvm.ID{VG: v.ID.VG, LV: "none"}, 1, 0)
	hosttest.WantKind(t, "extension of a missing volume", err, lvm.KindNotFound)
	all := v.Size + d.MustCapacity(t, b.Class()).Largest
	d.Counted(t, "a refused extension", 0, func() {
		_, err := d.Extend(t.Context(), v.ID, all+1, 0)
		hosttest.WantKind(t, "extension beyond the group", err, lvm.KindOutOfRange)
	})
	grown, err := d.Extend(t.Context(), v.ID, all, all)
	if err != nil || grown.Size != all {
		t.Errorf("extended to all of the group: %+v, %v", grown, err)
	}
	if c := d.MustCapacity(t, b.Class()); c.Largest != 0 {
		t.Errorf("a full group has the capacity %+v", c)
	}
}

// testLegs: classes that this node cannot serve, and classes that no node can.
func testLegs(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	for what, test := range map[string]struct {
		class lvm.Class
		kind  lvm.Kind
	}{
		"negative stripes":           {lvm.Class{Layout: lvm.LayoutStriped, Stripes: -1}, lvm.KindInvalid},
		"one stripe":                 {lvm.Class{Layout: lvm.LayoutStriped, Stripes: 1}, lvm.KindInvalid},
		"stripes of linear":          {lvm.Class{Layout: lvm.LayoutLinear, Stripes: 2}, lvm.KindInvalid},
		"a stripe of 5000":           {lvm.Class{Layout: lvm.LayoutStriped, StripeSize: 5000}, lvm.KindInvalid},
		"negative mirrors":           {lvm.Class{Layout: lvm.LayoutRAID1, Mirrors: -1}, lvm.KindInvalid},
		"ten mirrors":                {lvm.Class{Layout: lvm.LayoutRAID1, Mirrors: 10}, lvm.KindInvalid},
		"two data disks":             {lvm.Class{Layout: lvm.LayoutRAID6, Stripes: 2}, lvm.KindInvalid},
		"three copies":               {lvm.Class{Layout: lvm.LayoutRAID10, Mirrors: 2}, lvm.KindInvalid},
		"a pool of linear":           {lvm.Class{Layout: lvm.LayoutLinear, Pool: "p"}, lvm.KindInvalid},
		"a pool with a slash":        {lvm.Class{Layout: lvm.LayoutThin, Pool: "a/b"}, lvm.KindInvalid},
		"overprovision of 50 %":      {lvm.Class{Layout: lvm.LayoutThin, Overprovision: 50}, lvm.KindInvalid},
		"overprovision of 101 times": {lvm.Class{Layout: lvm.LayoutThin, Overprovision: 10100}, lvm.KindInvalid},
		"no such layout":             {lvm.Class{Layout: "mirror"}, lvm.KindInvalid},
		"more stripes than disks":    {lvm.Class{Layout: lvm.LayoutStriped, Stripes: 7}, lvm.KindInsufficientCapacity},
		"more copies than disks":     {lvm.Class{Layout: lvm.LayoutRAID1, Mirrors: 6}, lvm.KindInsufficientCapacity},
		"more data than disks":       {lvm.Class{Layout: lvm.LayoutRAID5, Stripes: 6}, lvm.KindInsufficientCapacity},
	} {
		d.Counted(t, what, 0, func() {
			_, err := d.Create(t.Context(), lvm.Spec{Name: "bad", Class: b.In(test.class), Required: 1})
			hosttest.WantKind(t, what, err, test.kind)
			if test.kind == lvm.KindInsufficientCapacity {
				if c := d.MustCapacity(t, b.In(test.class)); c.Largest != 0 {
					t.Errorf("%s: the capacity is %+v", what, c)
				}
			}
		})
	}
}
