package alloc_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// TestPlanAcceptsExactlyTheCapacity: for any layout and state, Plan accepts the largest volume and all smaller ones, on free extents only,
// each leg on another disk. It refuses one byte more, for a reason that holds.
func TestPlanAcceptsExactlyTheCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := fixture.AnyState.Draw(t, "state")
		class := fixture.AnyClass(rapid.SampledFrom([]string{"@fast", "one"}).Draw(t, "group")).Draw(t, "class")
		c, err := alloc.Capacity(s, class)
		if err != nil || c.Largest > c.Available {
			t.Fatalf("capacity %+v, %v", c, err)
		}
		if c.Largest > 0 {
			for _, size := range []lvm.Bytes{c.Largest, lvm.Bytes(rapid.Int64Range(1, int64(c.Largest)).Draw(t, "size"))} {
				ps, err := alloc.Plan(s, fixture.TestCluster, []lvm.Spec{{Name: "a", Class: class, Required: size}})
				if err != nil {
					t.Fatalf("%d of %d is refused: %v", size, c.Largest, err)
				}
				checkAllocation(t, s, ps[0].Create, size)
			}
		}
		_, err = alloc.Plan(s, fixture.TestCluster, []lvm.Spec{{Name: "a", Class: class, Required: c.Largest + 1}})
		if lvm.KindOf(err) != lvm.KindInsufficientCapacity {
			t.Fatalf("more than the largest, %d: %v", c.Largest+1, err)
		}
		groups, _ := alloc.GroupsOf(s, class)
		for _, g := range groups {
			if reason := Impossible(s, g, class, c.Largest+1); reason == "" {
				t.Fatalf("%d bytes would fit into %s: %+v", c.Largest+1, g.Name, g)
			}
		}
	})
}

// Impossible counts, without a plan, why a volume of the class cannot exist; "" if it can.
func Impossible(s lvm.State, g lvm.Group, class lvm.Class, size lvm.Bytes) string {
	if alloc.CheckAllocatable(s, g, class) != nil {
		return "an obstacle"
	}
	size = class.DeviceSize(size)
	rows := lvm.Extents((size + g.ExtentSize*lvm.Bytes(class.StripeExtents()) - 1) / (g.ExtentSize * lvm.Bytes(class.StripeExtents())))
	switch legs := class.Legs(); {
	case class.Layout == lvm.LayoutThin:
		return ImpossibleThin(g, class, g.Bytes(rows))
	case legs == 0:
		free := map[lvm.Bytes]lvm.Extents{} // by block size
		for _, pv := range g.PVs {
			for _, r := range pv.Free {
				if pv.Allocatable {
					free[pv.BlockSize] += r.Count
				}
			}
		}
		for _, n := range free {
			if n >= rows {
				return ""
			}
		}
		return "too few extents"
	default:
		need, disks := rows, map[lvm.Bytes]int{}
		if class.IsRAID() {
			region := alloc.RegionSize(g, class, rows*class.StripeExtents())
			bits := int64(rows) * int64(g.ExtentSize) / int64(region)
			sectors := (8192 + (bits+7)/8 + 511) / 512
			perExtent := int64(g.ExtentSize / 512)
			need += lvm.Extents((sectors + perExtent - 1) / perExtent)
		}
		for _, pv := range g.PVs {
			if pv.Allocatable && slices.ContainsFunc(pv.Free, func(r lvm.Run) bool { return r.Count >= need }) {
				disks[pv.BlockSize]++
			}
		}
		for _, n := range disks {
			if n >= legs {
				return ""
			}
		}
		return "too few disks with such a run"
	}
}

func ImpossibleThin(g lvm.Group, class lvm.Class, size lvm.Bytes) string {
	p, err := alloc.PoolOf(g, class)
	if err != nil {
		return err.Error()
	}
	provisioned := float64((size+p.Chunk-1)/p.Chunk*p.Chunk) / float64(p.Chunk)
	for _, lv := range g.LVs {
		if lv.Type == "thin" && lv.Pool == class.Pool {
			provisioned += float64((g.Bytes(lv.Extents)+p.Chunk-1)/p.Chunk*p.Chunk) / float64(p.Chunk)
		}
	}
	most := p.Data
	if p.Ours {
		most += p.Space.FreeExtents()
		if !p.Made {
			most -= p.Fixed()
		}
	}
	if provisioned > float64(g.Bytes(most)/p.Chunk)*float64(class.Overprovision)/100 {
		return "provisioned too much"
	}
	return ""
}

// TestPlannedVolumesShareNoExtent: volumes of one plan share no extent, and overprovision no pool beyond its limit.
func TestPlannedVolumesShareNoExtent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := fixture.AnyState.Draw(t, "state")
		var specs []lvm.Spec
		for i := range rapid.IntRange(1, 6).Draw(t, "volumes") {
			size := lvm.Bytes(rapid.IntRange(1, 100).Draw(t, "size")) * 256 * lvm.KiB
			specs = append(specs, lvm.Spec{Name: string(rune('a' + i)), Class: fixture.AnyClass("@fast").Draw(t, "class"), Required: size})
		}
		ps, err := alloc.Plan(s, fixture.TestCluster, specs)
		if err != nil {
			return
		}
		var carvings []*alloc.Allocation
		made := s.Clone()
		for i, p := range ps {
			checkAllocation(t, made, p.Create, specs[i].Required)
			alloc.ApplyAllocation(made, p.Create)
			carvings = append(carvings, p.Create)
		}
		if diff := cmp.Diff(made, alloc.WithAllocations(s, carvings)); diff != "" {
			t.Fatalf("what is reserved is not what is made: %s", diff)
		}
	})
}

func checkAllocation(t *rapid.T, s lvm.State, c *alloc.Allocation, size lvm.Bytes) {
	t.Helper()
	i := slices.IndexFunc(s.Groups, func(g lvm.Group) bool { return g.UUID == c.Group.UUID })
	group := s.Groups[i]
	class := c.Volume.Class
	if c.Volume.Size != class.DataSize(group.Bytes(c.Extents)) || c.Volume.Size < size {
		t.Fatalf("a volume of %s for %d bytes on %s", c.Volume.Size, size, group.Bytes(c.Extents))
	}
	size = class.DeviceSize(size)
	if group.Bytes(c.Extents) < size || group.Bytes(c.Extents-class.StripeExtents()) >= size || c.Extents%class.StripeExtents() != 0 {
		t.Fatalf("%d extents of %s in rows of %d for %d bytes", c.Extents, group.ExtentSize, class.StripeExtents(), size)
	}
	if class.Layout == lvm.LayoutThin {
		CheckPoolPlan(t, group, c)
		return
	}
	total := fixture.CheckFree(t, group, c.Ranges)
	if sizes := sizesUsed(group, c.Ranges); len(sizes) > 1 {
		t.Fatalf("a volume on disks with blocks of %v", sizes)
	}
	if class.Legs() == 0 {
		if total != c.Extents {
			t.Fatalf("%d extents planned, %d wanted", total, c.Extents)
		}
		return
	}
	disks := map[string]bool{}
	for _, r := range c.Ranges {
		disks[r.Device] = true
		if n := r.Last - r.First + 1; n != alloc.LegExtents(group, class, c.Extents) {
			t.Fatalf("a leg of %d extents", n)
		}
	}
	if len(disks) != class.Legs() || len(c.Ranges) != class.Legs() {
		t.Fatalf("%d legs on %d disks: %+v", class.Legs(), len(disks), c.Ranges)
	}
}

// CheckPoolPlan checks that the pool, extended as planned, covers its provisioned size.
func CheckPoolPlan(t *rapid.T, g lvm.Group, c *alloc.Allocation) {
	t.Helper()
	p, err := alloc.PoolOf(g, c.Volume.Class)
	if err != nil {
		t.Fatal(err)
	}
	data := p.Data
	if grown := c.Pool; grown != nil {
		fixed := lvm.Extents(0)
		if grown.Home != nil {
			fixed = p.Fixed()
		}
		if sizes := sizesUsed(g, append(slices.Clone(grown.Home), grown.Ranges...)); len(sizes) > 1 {
			t.Fatalf("a pool on disks with blocks of %v", sizes)
		}
		if n := fixture.CheckFree(t, g, append(slices.Clone(grown.Home), grown.Ranges...)); n != grown.Data-data+fixed {
			t.Fatalf("%d extents for a pool that grows from %d to %d and needs %d beside it", n, data, grown.Data, fixed)
		}
		data = grown.Data
	}
	provisioned := p.Provisioned + p.Chunks(c.Extents)
	if have := lvm.Extents(g.Bytes(data)/p.Chunk) * lvm.Extents(c.Volume.Class.Overprovision) / 100; provisioned > have {
		t.Fatalf("%d chunks provisioned of %d", provisioned, have)
	}
}
