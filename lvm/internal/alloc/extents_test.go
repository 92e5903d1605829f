package alloc_test

import (
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

const extent = 4 * lvm.MiB

// mixedGroup has disks of 100 extents of 4 MiB, all free, with logical blocks of these sizes.
func mixedGroup(sizes ...lvm.Bytes) lvm.State {
	var free [][]lvm.Run
	for range sizes {
		free = append(free, []lvm.Run{{Start: 0, Count: 100}})
	}
	g := fixture.TestGroup("vg", free...)
	for i, size := range sizes {
		g.PVs[i].BlockSize = size
	}
	return lvm.State{Groups: []lvm.Group{g}}
}

// sizesUsed returns the block sizes of the disks of ranges, as they first appear.
func sizesUsed(g lvm.Group, ranges []alloc.ExtentRange) (sizes []lvm.Bytes) {
	used := lvm.Group{}
	for _, r := range ranges {
		for _, pv := range g.PVs {
			if pv.Device == r.Device {
				used.PVs = append(used.PVs, pv)
			}
		}
	}
	return used.BlockSizes()
}

// TestVolumeIsOnOneBlockSize: in a group whose disks have logical blocks of two sizes, a new volume is on disks of one, and capacity
// says so.
func TestVolumeIsOnOneBlockSize(t *testing.T) {
	for what, c := range map[string]struct {
		sizes              []lvm.Bytes
		class              lvm.Class
		largest, available lvm.Extents
	}{
		"linear":                            {[]lvm.Bytes{512, 4096, 512}, lvm.Class{Layout: lvm.LayoutLinear}, 200, 300},
		"linear, one size":                  {[]lvm.Bytes{4096, 4096, 4096}, lvm.Class{Layout: lvm.LayoutLinear}, 300, 300},
		"RAID1 with a leg on each":          {[]lvm.Bytes{512, 4096}, lvm.Class{Layout: lvm.LayoutRAID1}, 0, 0},
		"RAID1 on two of the same":          {[]lvm.Bytes{512, 4096, 4096, 4096, 4096, 512}, lvm.Class{Layout: lvm.LayoutRAID1}, 99, 298},
		"striped":                           {[]lvm.Bytes{512, 4096, 512}, lvm.Class{Layout: lvm.LayoutStriped, Stripes: 2}, 200, 200},
		"thin":                              {[]lvm.Bytes{512, 4096, 512}, lvm.Class{Layout: lvm.LayoutThin, Overprovision: 100}, 196, 196},
		"a disk that reports no block size": {[]lvm.Bytes{512, 0}, lvm.Class{Layout: lvm.LayoutLinear}, 100, 200},
	} {
		s := mixedGroup(c.sizes...)
		c.class.Group = "vg"
		got, err := alloc.Capacity(s, c.class)
		if fixture.Must(t, err); got.Largest != extent*lvm.Bytes(c.largest) || got.Available != extent*lvm.Bytes(c.available) {
			t.Errorf("%s: capacity %d and %d extents, want %d and %d", what, got.Largest/extent, got.Available/extent, c.largest, c.available)
		}
		_, err = alloc.Plan(s, fixture.TestCluster, []lvm.Spec{{Name: "b", Class: c.class, Required: got.Largest + 1}})
		if mixed := len(s.Groups[0].BlockSizes()) > 1; lvm.KindOf(err) != lvm.KindInsufficientCapacity || strings.Contains(err.Error(), "a volume is on disks of one size") != mixed {
			t.Errorf("%s: one byte more: %v", what, err)
		}
		if c.largest == 0 {
			continue
		}
		p, err := alloc.Plan(s, fixture.TestCluster, []lvm.Spec{{Name: "a", Class: c.class, Required: got.Largest}})
		fixture.Must(t, err)
		ranges := p[0].Create.Ranges
		if pool := p[0].Create.Pool; pool != nil {
			ranges = append(pool.Home, pool.Ranges...)
		}
		if used := sizesUsed(s.Groups[0], ranges); len(used) != 1 {
			t.Errorf("%s: on disks with blocks of %v", what, used)
		}
	}
}

// TestVolumeGrowsOnItsBlockSize: a volume grows onto disks with its own logical block size only; one that is on both grows onto those
// with the larger blocks, which its device has.
func TestVolumeGrowsOnItsBlockSize(t *testing.T) {
	for what, c := range map[string]struct {
		class lvm.Class
		after func(g *lvm.Group, lv *lvm.LV)
		most  lvm.Extents
		size  lvm.Bytes // of the disks that it grows onto
	}{
		"linear":  {lvm.Class{Layout: lvm.LayoutLinear}, nil, 200, 512},
		"striped": {lvm.Class{Layout: lvm.LayoutStriped, Stripes: 2}, nil, 200, 512},
		"thin":    {lvm.Class{Layout: lvm.LayoutThin, Overprovision: 100}, nil, 196, 512},
		"on both": {lvm.Class{Layout: lvm.LayoutLinear}, func(g *lvm.Group, lv *lvm.LV) {
			lv.Segments = append(lv.Segments, lvm.Segment{Start: lv.Extents, Extents: 1, Type: "linear", Areas: []lvm.Area{{PV: "vgb", Start: 0}}})
			lv.Extents++
			g.PVs[1].Free = []lvm.Run{{Start: 1, Count: 99}}
		}, 110, 4096},
	} {
		s := mixedGroup(512, 4096, 512)
		g := &s.Groups[0]
		free := g.PVs[1].Free
		g.PVs[1].Free = nil
		if c.class.Layout == lvm.LayoutThin {
			g.PVs[2].Free = nil // its pool is on the first disk
		}
		v := fixture.NewVolume(t, s, fixture.SpecIn("a", c.class, 10*extent))
		if g.PVs[1].Free = free; c.class.Layout == lvm.LayoutThin {
			g.PVs[2].Free = free
		}
		lv := g.FindLV(v.ID.LV)
		if c.class.Layout == lvm.LayoutThin {
			for i := range g.LVs {
				if g.LVs[i].Name == v.ID.LV {
					lv = &g.LVs[i]
				}
			}
		}
		if c.after != nil {
			c.after(g, lv)
			v.Size += extent
		}
		x, err := alloc.PlanExtend(s, v, alloc.ExtendRequest{Required: extent * lvm.Bytes(c.most)})
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		ranges := x.Ranges
		if x.Pool != nil {
			ranges = x.Pool.Ranges
		}
		if used := sizesUsed(*g, ranges); len(used) != 1 || used[0] != c.size {
			t.Errorf("%s: it grows onto disks with blocks of %v", what, used)
		}
		_, err = alloc.PlanExtend(s, v, alloc.ExtendRequest{Required: extent * lvm.Bytes(c.most+2)})
		if lvm.KindOf(err) != lvm.KindOutOfRange || !strings.Contains(err.Error(), "512 and 4096 bytes, and a volume is on disks of one size") {
			t.Errorf("%s: more: kind %v, %v", what, lvm.KindOf(err), err)
		}
	}
}
