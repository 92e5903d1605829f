package lvmtest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// shape is a layout that the suite tests, and its expected extents.
type shape struct {
	class lvm.Class // without its group
	legs  int       // disks that it is on
	data  int       // disks with different data: a row is one extent on each
}

var shapes = []shape{
	{lvm.Class{Layout: lvm.LayoutStriped, Stripes: 2, StripeSize: 64 * lvm.KiB}, 2, 2},
	{lvm.Class{Layout: lvm.LayoutStriped, Stripes: 3, StripeSize: 128 * lvm.KiB}, 3, 3},
	{lvm.Class{Layout: lvm.LayoutRAID1, Mirrors: 1}, 2, 1},
	{lvm.Class{Layout: lvm.LayoutRAID5, Stripes: 2, StripeSize: 64 * lvm.KiB}, 3, 2},
	{lvm.Class{Layout: lvm.LayoutRAID6, Stripes: 3, StripeSize: 64 * lvm.KiB}, 5, 3},
	{lvm.Class{Layout: lvm.LayoutRAID10, Stripes: 2, StripeSize: 64 * lvm.KiB, Mirrors: 1}, 4, 2},
}

func (s shape) String() string { return fmt.Sprintf("%s of %d disks", s.class.Layout, s.legs) }

// row is the smallest expansion of a volume with this shape.
func (s shape) row() lvm.Bytes { return lvm.Bytes(s.data) * ExtentSize }

func (b Fixture) in(class lvm.Class) lvm.Class {
	class.Group = b.Group
	if class.Wipe == "" && class.Layout != lvm.LayoutThin {
		class.Wipe = lvm.WipeZero
	}
	return class
}

// testShape creates, extends and deletes a volume of one layout.
func testShape(t *testing.T, b Fixture, s shape) {
	d := b.Start(t)
	class := b.in(s.class)
	class.Wipe = lvm.WipeNone
	before := d.capacity(t, class)
	spec := lvm.Spec{Name: "shaped", Class: class, Required: 1}
	var v lvm.Volume
	d.counted(t, "create", 2, func() { v = d.create(t, spec) })
	if v.Size != s.row() || v.Class != class || v.State != lvm.StateReady {
		t.Errorf("created %+v, want %s of %+v", v, s.row(), class)
	}
	if _, active, err := d.Device(v.ID, v.UUID); err != nil || !active {
		t.Errorf("its device: active %v, %v", active, err)
	}
	b.checkLegs(t, v, s.legs)
	d.counted(t, "create again", 0, func() {
		if again := d.create(t, spec); again != v {
			t.Errorf("created again: %+v, want %+v", again, v)
		}
		_, err := d.Create(t.Context(), b.spec("shaped", 1))
		wantKind(t, "a linear volume of its name", err, lvm.KindExists)
		wider := spec
		if wider.Class.Stripes > 0 {
			wider.Class.Stripes++
		} else {
			wider.Class.Mirrors++
		}
		_, err = d.Create(t.Context(), wider)
		wantKind(t, "one with more legs", err, lvm.KindExists)
	})
	v = testGrow(t, d, v, s.row())
	b.checkLegs(t, v, s.legs)
	d = b.Start(t)
	if volumes, err := d.List(t.Context()); err != nil || !slices.Equal(volumes, []lvm.Volume{v}) {
		t.Errorf("after a restart there is %+v, %v; want %+v", volumes, err, v)
	}
	testLargest(t, d, lvm.Spec{Name: "the rest", Class: class}, s)
	must(t, d.Delete(t.Context(), v.ID))
	d.waitWiped(t)
	if after := d.capacity(t, class); after != before {
		t.Errorf("capacity after all is deleted %+v, before %+v", after, before)
	}
}

// testGrow extends a volume by one byte, which takes a row, and then requests its present size.
func testGrow(t *testing.T, d *Driver, v lvm.Volume, row lvm.Bytes) lvm.Volume {
	t.Helper()
	want := v
	want.Size += row
	d.counted(t, "extension", 3, func() {
		grown, err := d.Extend(t.Context(), v.ID, v.Size+1, 0)
		must(t, err)
		if grown != want {
			t.Errorf("extended by a byte: %+v, want %+v", grown, want)
		}
	})
	d.counted(t, "extension to the present size", 0, func() {
		for _, size := range []lvm.Bytes{0, 1, v.Size, want.Size} {
			if same, err := d.Extend(t.Context(), v.ID, size, 0); err != nil || same != want {
				t.Errorf("extended to %d bytes: %+v, %v; want %+v", size, same, err, want)
			}
		}
		for _, bad := range []struct{ required, limit lvm.Bytes }{{-1, 0}, {1<<63 - 1, 0}, {want.Size + 1, want.Size + 2}, {want.Size + row, want.Size}} {
			_, err := d.Extend(t.Context(), v.ID, bad.required, bad.limit)
			wantKind(t, fmt.Sprintf("extension to %d bytes, at most %d", bad.required, bad.limit), err, lvm.KindOutOfRange)
		}
	})
	if found, err := d.Lookup(t.Context(), v.ID); err != nil || found != want {
		t.Errorf("after its extension it is found as %+v, %v; want %+v", found, err, want)
	}
	return want
}

// testLargest requests the largest possible volume, and one byte more.
func testLargest(t *testing.T, d *Driver, spec lvm.Spec, s shape) {
	t.Helper()
	spec.Class.Wipe = lvm.WipeNone // the volume holds nothing
	c := d.capacity(t, spec.Class)
	if c.Largest < s.row() || c.Largest%s.row() != 0 || c.Available < c.Largest {
		t.Errorf("%s: the capacity is %+v", s, c)
	}
	spec.Required = c.Largest + 1
	d.counted(t, "a refused create", 0, func() {
		_, err := d.Create(t.Context(), spec)
		wantKind(t, "one byte more than the largest", err, lvm.KindInsufficientCapacity)
	})
	spec.Required = c.Largest
	v := d.create(t, spec)
	if v.Size != c.Largest {
		t.Errorf("requested the largest, %s, got %s", c.Largest, v.Size)
	}
	must(t, d.Delete(t.Context(), v.ID))
	d.waitWiped(t)
}

// checkLegs checks that no two legs of a volume share a disk.
func (b Fixture) checkLegs(t *testing.T, v lvm.Volume, want int) {
	t.Helper()
	g := b.group(t)
	owner, legs := map[string]int{}, 0
	for _, s := range find(t, g, v.ID.LV).Segments {
		legs = len(s.Areas)
		for i := range s.Areas {
			for _, pv := range disksOf(t, g, s, i) {
				if other, taken := owner[pv]; taken && other != i {
					t.Errorf("legs %d and %d of %s are on one disk", other, i, v.ID.LV)
				}
				owner[pv] = i
			}
		}
	}
	if legs != want || len(owner) < want {
		t.Errorf("%s has %d legs on %d disks, want %d", v.ID.LV, legs, len(owner), want)
	}
}

// disksOf lists the disks that a leg of a segment is on, with its metadata.
func disksOf(t *testing.T, g lvm.Group, s lvm.Segment, leg int) []string {
	t.Helper()
	areas := []lvm.Area{s.Areas[leg]}
	if len(s.Metadata) > 0 {
		areas = append(areas, s.Metadata[leg])
	}
	var pvs []string
	for _, a := range areas {
		if a.PV != "" {
			pvs = append(pvs, a.PV)
			continue
		}
		for _, inner := range find(t, g, a.LV).Segments {
			for i := range inner.Areas {
				pvs = append(pvs, disksOf(t, g, inner, i)...)
			}
		}
	}
	return pvs
}

func (b Fixture) group(t testing.TB) lvm.Group {
	t.Helper()
	s := b.Read(t)
	i := slices.IndexFunc(s.Groups, func(g lvm.Group) bool { return string(g.Name) == b.Group })
	if i < 0 {
		t.Fatalf("there is no group %s", b.Group)
	}
	return s.Groups[i]
}

func find(t testing.TB, g lvm.Group, name string) lvm.LV {
	t.Helper()
	i := slices.IndexFunc(g.LVs, func(lv lvm.LV) bool { return lv.Name == name })
	if i < 0 {
		t.Fatalf("group %s has no %s", g.Name, name)
	}
	return g.LVs[i]
}

// testExtendLinear: a linear volume extends onto any free extents, up to the last one.
func testExtendLinear(t *testing.T, b Fixture) {
	d := b.Start(t)
	v := d.create(t, b.light("grows", ExtentSize))
	d.create(t, b.light("in the way", ExtentSize))
	v = testGrow(t, d, v, ExtentSize)
	_, err := d.Extend(t.Context(), lvm.ID{VG: v.ID.VG, LV: "none"}, 1, 0)
	wantKind(t, "extension of a missing volume", err, lvm.KindNotFound)
	all := v.Size + d.capacity(t, b.class()).Largest
	d.counted(t, "a refused extension", 0, func() {
		_, err := d.Extend(t.Context(), v.ID, all+1, 0)
		wantKind(t, "extension beyond the group", err, lvm.KindOutOfRange)
	})
	grown, err := d.Extend(t.Context(), v.ID, all, all)
	if err != nil || grown.Size != all {
		t.Errorf("extended to all of the group: %+v, %v", grown, err)
	}
	if c := d.capacity(t, b.class()); c.Largest != 0 {
		t.Errorf("a full group has the capacity %+v", c)
	}
}

// testLegs: classes that this node cannot serve, and classes that no node can.
func testLegs(t *testing.T, b Fixture) {
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
		d.counted(t, what, 0, func() {
			_, err := d.Create(t.Context(), lvm.Spec{Name: "bad", Class: b.in(test.class), Required: 1})
			wantKind(t, what, err, test.kind)
			if test.kind == lvm.KindInsufficientCapacity {
				if c := d.capacity(t, b.in(test.class)); c.Largest != 0 {
					t.Errorf("%s: the capacity is %+v", what, c)
				}
			}
		})
	}
}
