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
	if _, active, err := d.Device(t.Context(), v.ID, v.UUID); err != nil || !active {
		t.Errorf("its device: active %v, %v", active, err)
	}
	b.CheckLegs(t, v, s.Legs)
	d.Counted(t, "create again", 0, func() {
		if again := d.MustCreate(t, spec); again != v {
			t.Errorf("created again: %+v, want %+v", again, v)
		}
		hosttest.Refused(t, "a linear volume of its name", lvm.KindExists)(d.Create(t.Context(), b.Spec("shaped", 1)))
		wider := spec
		if wider.Class.Stripes > 0 {
			wider.Class.Stripes++
		} else {
			wider.Class.Mirrors++
		}
		hosttest.Refused(t, "one with more legs", lvm.KindExists)(d.Create(t.Context(), wider))
	})
	v = testGrow(t, d, v, s.Row())
	b.CheckLegs(t, v, s.Legs)
	d = b.Start(t)
	if volumes, err := d.List(t.Context()); err != nil || !slices.Equal(volumes, []lvm.Volume{v}) {
		t.Errorf("after a restart there is %+v, %v; want %+v", volumes, err, v)
	}
	testLargest(t, d, lvm.Spec{Name: "the rest", Class: class}, s)
	d.MustRemove(t, v)
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
		grown := d.MustExtend(t, v, v.Size+1)
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
			hosttest.Refused(t, fmt.Sprintf("extension to %d bytes, at most %d", bad.required, bad.limit), lvm.KindOutOfRange)(d.Extend(t.Context(), v.ID, bad.required, bad.limit))
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
		hosttest.Refused(t, "one byte more than the largest", lvm.KindInsufficientCapacity)(d.Create(t.Context(), spec))
	})
	spec.Required = c.Largest
	v := d.MustCreate(t, spec)
	if v.Size != c.Largest {
		t.Errorf("requested the largest, %s, got %s", c.Largest, v.Size)
	}
	d.MustRemove(t, v)
}

// testExtendLinear: a linear volume extends onto any free extents, up to the last one.
func testExtendLinear(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	v := d.MustCreate(t, b.Light("grows", lvmtest.ExtentSize))
	d.MustCreate(t, b.Light("in the way", lvmtest.ExtentSize))
	v = testGrow(t, d, v, lvmtest.ExtentSize)
	hosttest.Refused(t, "extension of a missing volume", lvm.KindNotFound)(d.Extend(t.Context(), lvm.ID{VG: v.ID.VG, LV: "none"}, 1, 0))
	all := v.Size + d.MustCapacity(t, b.Class()).Largest
	d.Counted(t, "a refused extension", 0, func() {
		hosttest.Refused(t, "extension beyond the group", lvm.KindOutOfRange)(d.Extend(t.Context(), v.ID, all+1, 0))
	})
	grown, err := d.Extend(t.Context(), v.ID, all, all)
	if err != nil || grown.Size != all {
		t.Errorf("extended to all of the group: %+v, %v", grown, err)
	}
	if c := d.MustCapacity(t, b.Class()); c.Largest != 0 {
		t.Errorf("a full group has the capacity %+v", c)
	}
}
