package lvm

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestCapacityIsTrue: whatever the layout and the state, the largest volume is accepted, and every smaller one, on free
// extents only, each leg on a disk of its own; one byte more than the largest is refused, for a reason that holds.
func TestCapacityIsTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyState.Draw(t, "state")
		class := anyClass(rapid.SampledFrom([]string{"@fast", "one"}).Draw(t, "group")).Draw(t, "class")
		c, err := capacity(s, class)
		if err != nil || c.Largest > c.Available {
			t.Fatalf("capacity %+v, %v", c, err)
		}
		if c.Largest > 0 {
			for _, size := range []Bytes{c.Largest, Bytes(rapid.Int64Range(1, int64(c.Largest)).Draw(t, "size"))} {
				ps, err := plan(s, testCluster, []Spec{{Name: "a", Class: class, Required: size}})
				if err != nil {
					t.Fatalf("%d of %d is refused: %v", size, c.Largest, err)
				}
				checkCarving(t, s, ps[0].carve, size)
			}
		}
		_, err = plan(s, testCluster, []Spec{{Name: "a", Class: class, Required: c.Largest + 1}})
		if KindOf(err) != KindInsufficientCapacity {
			t.Fatalf("more than the largest, %d: %v", c.Largest+1, err)
		}
		groups, _ := groupsOf(s, class)
		for _, g := range groups {
			if reason := impossible(s, g, class, c.Largest+1); reason == "" {
				t.Fatalf("%d bytes would fit into %s: %+v", c.Largest+1, g.Name, g)
			}
		}
	})
}

// impossible finds by counting, not by planning, why a volume of the class cannot be made; "" if it could.
func impossible(s State, g Group, class Class, size Bytes) string {
	if obstacle(s, g, class) != nil {
		return "an obstacle"
	}
	rows := Extents((size + g.ExtentSize*Bytes(class.row()) - 1) / (g.ExtentSize * Bytes(class.row())))
	switch legs := class.legs(); {
	case class.Layout == LayoutThin:
		return impossibleThin(g, class, g.bytes(rows))
	case legs == 0:
		var free Extents
		for _, pv := range g.PVs {
			for _, r := range pv.Free {
				if pv.Allocatable {
					free += r.Count
				}
			}
		}
		if free < rows {
			return "too few extents"
		}
	default:
		need, disks := rows, 0
		if class.raid() {
			region := regionSize(g, class, rows*class.row())
			bits := int64(rows) * int64(g.ExtentSize) / int64(region)
			sectors := (8192 + (bits+7)/8 + 511) / 512
			perExtent := int64(g.ExtentSize / 512)
			need += Extents((sectors + perExtent - 1) / perExtent)
		}
		for _, pv := range g.PVs {
			if pv.Allocatable && slices.ContainsFunc(pv.Free, func(r Run) bool { return r.Count >= need }) {
				disks++
			}
		}
		if disks < legs {
			return "too few disks with such a run"
		}
	}
	return ""
}

func impossibleThin(g Group, class Class, size Bytes) string {
	p, err := poolOf(g, class)
	if err != nil {
		return err.Error()
	}
	promised := float64((size+p.chunk-1)/p.chunk*p.chunk) / float64(p.chunk)
	for _, lv := range g.LVs {
		if lv.Type == "thin" && lv.Pool == class.Pool {
			promised += float64((g.bytes(lv.Extents)+p.chunk-1)/p.chunk*p.chunk) / float64(p.chunk)
		}
	}
	most := p.data
	if p.ours {
		most += g.free()
		if !p.made {
			most -= p.fixed()
		}
	}
	if promised > float64(g.bytes(most)/p.chunk)*float64(class.Overprovision)/100 {
		return "promised too much"
	}
	return ""
}

// TestPlanKeepsApart: however many volumes are planned together, no extent is given twice, and no promise is broken.
func TestPlanKeepsApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyState.Draw(t, "state")
		var specs []Spec
		for i := range rapid.IntRange(1, 6).Draw(t, "volumes") {
			size := Bytes(rapid.IntRange(1, 100).Draw(t, "size")) * 256 * KiB
			specs = append(specs, Spec{Name: string(rune('a' + i)), Class: anyClass("@fast").Draw(t, "class"), Required: size})
		}
		ps, err := plan(s, testCluster, specs)
		if err != nil {
			return
		}
		var carvings []*carving
		made := s.clone()
		for i, p := range ps {
			checkCarving(t, made, p.carve, specs[i].Required)
			takeCarving(made, p.carve)
			carvings = append(carvings, p.carve)
		}
		if diff := cmp.Diff(made, withCarvings(s, carvings)); diff != "" {
			t.Fatalf("what is reserved is not what is made: %s", diff)
		}
	})
}

func checkCarving(t *rapid.T, s State, c *carving, size Bytes) {
	t.Helper()
	i := slices.IndexFunc(s.Groups, func(g Group) bool { return g.UUID == c.group.UUID })
	group := s.Groups[i]
	class := c.volume.Class
	if group.bytes(c.extents) < size || group.bytes(c.extents-class.row()) >= size || c.extents%class.row() != 0 {
		t.Fatalf("%d extents of %s in rows of %d for %d bytes", c.extents, group.ExtentSize, class.row(), size)
	}
	if class.Layout == LayoutThin {
		checkPoolPlan(t, group, c)
		return
	}
	total := checkFree(t, group, c.ranges)
	if class.legs() == 0 {
		if total != c.extents {
			t.Fatalf("%d extents planned, %d wanted", total, c.extents)
		}
		return
	}
	disks := map[string]bool{}
	for _, r := range c.ranges {
		disks[r.device] = true
		if n := r.last - r.first + 1; n != legExtents(group, class, c.extents) {
			t.Fatalf("a leg of %d extents", n)
		}
	}
	if len(disks) != class.legs() || len(c.ranges) != class.legs() {
		t.Fatalf("%d legs on %d disks: %+v", class.legs(), len(disks), c.ranges)
	}
}

// checkPoolPlan sees that the pool, grown as planned, covers what it promises then.
func checkPoolPlan(t *rapid.T, g Group, c *carving) {
	t.Helper()
	p, err := poolOf(g, c.volume.Class)
	if err != nil {
		t.Fatal(err)
	}
	data := p.data
	if grown := c.pool; grown != nil {
		fixed := Extents(0)
		if grown.home != nil {
			fixed = p.fixed()
		}
		if n := checkFree(t, g, append(slices.Clone(grown.home), grown.ranges...)); n != grown.data-data+fixed {
			t.Fatalf("%d extents for a pool that grows from %d to %d and needs %d beside it", n, data, grown.data, fixed)
		}
		data = grown.data
	}
	promised := p.promised + p.chunks(c.extents)
	if have := Extents(g.bytes(data)/p.chunk) * Extents(c.volume.Class.Overprovision) / 100; promised > have {
		t.Fatalf("%d chunks promised of %d", promised, have)
	}
}
