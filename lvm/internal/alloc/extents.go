package alloc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// WithAllocations returns the state after the allocations.
func WithAllocations(s lvm.State, carvings []*Allocation) lvm.State {
	s = s.Clone()
	for _, c := range carvings {
		ApplyAllocation(s, c)
	}
	return s
}

// ApplyAllocation marks an allocation's extents and its name as used, for the specs that are planned next.
func ApplyAllocation(s lvm.State, c *Allocation) {
	for i := range s.Groups {
		g := &s.Groups[i]
		if g.UUID != c.Group.UUID {
			continue
		}
		g.MDAFree -= MetadataNeed(*g, c.Volume.Class)
		UseRanges(g, c.Ranges)
		lv := lvm.LV{Name: c.Volume.ID.LV, Extents: c.Extents, Type: string(c.Volume.Class.Layout)}
		if c.Volume.Class.Layout == lvm.LayoutThin {
			lv.Pool = c.Volume.Class.Pool
		}
		if c.Pool != nil {
			allocatePool(g, c.Pool)
		}
		if c.Source != nil {
			lv.Origin = c.Source.Name
		}
		v := c.Volume
		v.State = lvm.StateReady
		lv.Managed = lvm.ManagedVolumeOf(v)
		g.LVs = append(g.LVs, lv)
	}
}

// allocatePool changes the pool to its state after the growth, if it is not there yet.
func allocatePool(g *lvm.Group, p *PoolGrowth) {
	UseRanges(g, p.Home)
	UseRanges(g, p.Ranges)
	g.LVs = slices.DeleteFunc(g.LVs, func(lv lvm.LV) bool { return lv.Name == p.Name && lv.Thin == nil })
	i := slices.IndexFunc(g.LVs, func(lv lvm.LV) bool { return lv.Name == p.Name })
	if i < 0 {
		i = len(g.LVs)
		g.LVs = append(g.LVs,
			lvm.LV{Name: p.Name, Managed: &lvm.Managed{Pool: true, Cluster: p.Cluster}, Type: "thin-pool", Thin: &lvm.ThinPool{Data: p.Name + "_tdata", Metadata: p.Name + "_tmeta", ChunkSize: p.Chunk, Zero: true}},
			lvm.LV{Name: p.Name + "_tdata", Extents: p.Data, Type: "linear", Hidden: true, Segments: dataSegments(*g, p)},
			lvm.LV{Name: p.Name + "_tmeta", Extents: p.Metadata, Type: "linear", Hidden: true},
			lvm.LV{Name: "lvol0" + SpareSuffix, Extents: max(p.Metadata, spareOf(*g)), Type: "linear", Hidden: true})
	}
	g.LVs[i].Extents = max(g.LVs[i].Extents, p.Data)
}

// dataSegments places a new pool's data, as far as a further plan needs it: on the disk of its home.
func dataSegments(g lvm.Group, p *PoolGrowth) []lvm.Segment {
	for _, pv := range g.PVs {
		if len(p.Home) > 0 && pv.Device == p.Home[0].Device {
			return []lvm.Segment{{Extents: p.Data, Type: "linear", Areas: []lvm.Area{{PV: pv.UUID, Start: p.Home[0].First}}}}
		}
	}
	return nil
}

// UseRanges removes the ranges from the free extents.
func UseRanges(g *lvm.Group, ranges []ExtentRange) {
	for _, r := range ranges {
		for j := range g.PVs {
			if r.Device == g.PVs[j].Device {
				g.PVs[j].Free = without(g.PVs[j].Free, r.First, r.Last)
				g.PVs[j].Zeroed = without(g.PVs[j].Zeroed, r.First, r.Last)
			}
		}
	}
}

// without removes the extents first to last from the runs.
func without(runs []lvm.Run, first, last lvm.Extents) []lvm.Run {
	var rest []lvm.Run
	for _, r := range runs {
		end := r.Start + r.Count // the first extent after it
		if before := min(end, first) - r.Start; before > 0 {
			rest = append(rest, lvm.Run{Start: r.Start, Count: before})
		}
		if start := max(r.Start, last+1); end > start {
			rest = append(rest, lvm.Run{Start: start, Count: end - start})
		}
	}
	return rest
}

// ExtentRange is a range of physical extents, both ends included, as lvcreate(8) accepts it: PV:first-last.
type ExtentRange struct {
	Device      string
	First, Last lvm.Extents
}

// FreeExtent is a free range and its disk.
type FreeExtent struct {
	Device string
	lvm.Run
}

// Head returns the first n extents of the free range.
func (h FreeExtent) Head(n lvm.Extents) ExtentRange {
	return ExtentRange{Device: h.Device, First: h.Start, Last: h.Start + n - 1}
}

// FreeExtents lists the allocatable ranges of the group, the largest first, equal ones in the order of the disks.
func FreeExtents(g lvm.Group) []FreeExtent {
	var all []FreeExtent
	for _, pv := range g.PVs {
		if !pv.IsAllocatable() {
			continue
		}
		for _, r := range pv.Free {
			all = append(all, FreeExtent{pv.Device, r})
		}
	}
	slices.SortStableFunc(all, func(a, b FreeExtent) int { return cmp.Compare(b.Count, a.Count) })
	return all
}

// smallest finds the smallest free range with n extents; among equals, the last. If none has them, it returns the first, which
// is the largest. free is sorted, the largest first.
func smallest(free []FreeExtent, n lvm.Extents) int {
	i := 0
	for i+1 < len(free) && free[i+1].Count >= n {
		i++
	}
	return i
}

// LinearRanges picks the extents of a linear volume: the smallest free range that suffices, or else ranges of one disk, so that
// the loss of another disk does no harm. Of several such disks it picks the one with the fewest ranges. Only if no disk
// suffices, the volume spans disks. Nil if the group lacks extents.
func LinearRanges(g lvm.Group, extents lvm.Extents) []ExtentRange {
	if free := FreeExtents(g); len(free) > 0 && free[0].Count >= extents {
		return fewestRanges(free, extents)
	}
	var best []ExtentRange
	for _, pv := range g.PVs {
		if pv.AllocatableExtents() < extents {
			continue
		}
		if ranges := fewestRanges(FreeExtents(lvm.Group{PVs: []lvm.PV{pv}}), extents); best == nil || len(ranges) < len(best) {
			best = ranges
		}
	}
	if best != nil {
		return best
	}
	return fewestRanges(FreeExtents(g), extents)
}

// fewestRanges picks the largest ranges, so that they are few, and the smallest that suffices for the rest.
func fewestRanges(free []FreeExtent, extents lvm.Extents) []ExtentRange {
	var ranges []ExtentRange
	for extents > 0 {
		if len(free) == 0 {
			return nil
		}
		i := smallest(free, extents)
		n := min(free[i].Count, extents)
		ranges = append(ranges, free[i].Head(n))
		extents -= n
		free = slices.Delete(free, i, i+1)
	}
	return ranges
}

// legRanges picks one range of n extents on each of as many disks as there are legs. Of the disks with such a range it prefers
// those with most free extents, so that disks fill evenly; on each, the smallest range that fits. Nil if too few disks have
// one.
func legRanges(g lvm.Group, legs int, n lvm.Extents) []ExtentRange {
	type leg struct {
		FreeExtent
		room lvm.Extents // free extents of the whole disk
	}
	var all []leg
	for _, pv := range g.PVs {
		if pv.LongestRun() >= n {
			free := FreeExtents(lvm.Group{PVs: []lvm.PV{pv}})
			all = append(all, leg{free[smallest(free, n)], pv.AllocatableExtents()})
		}
	}
	if len(all) < legs {
		return nil
	}
	slices.SortStableFunc(all, func(a, b leg) int { return cmp.Compare(b.room, a.room) })
	ranges := make([]ExtentRange, 0, legs)
	for _, l := range all[:legs] {
		ranges = append(ranges, l.Head(n))
	}
	return ranges
}

// A group can have disks with logical blocks of several sizes (lvm.conf, devices/allow_mixed_block_sizes). A volume on both has the
// larger blocks: a file system that was created on smaller ones can then be neither extended nor mounted. So a new volume is on disks
// of one size, and grows onto disks of that size.

// unknownBlocks is the block size of an LV of which no disk is known.
const unknownBlocks = lvm.Bytes(-1)

// spaces returns the group for each size of blocks, with the free extents on disks of that size only.
func spaces(g lvm.Group) []lvm.Group {
	sizes := g.BlockSizes()
	if len(sizes) < 2 {
		return []lvm.Group{g}
	}
	all := make([]lvm.Group, 0, len(sizes))
	for _, size := range sizes {
		all = append(all, onBlocks(g, size))
	}
	return all
}

// onBlocks returns the group with the free extents on disks with blocks of this size only.
func onBlocks(g lvm.Group, size lvm.Bytes) lvm.Group {
	g.PVs = slices.Clone(g.PVs)
	for i := range g.PVs {
		if pv := &g.PVs[i]; pv.BlockSize != size {
			pv.Free, pv.Zeroed = nil, nil
		}
	}
	return g
}

// spaceOf returns the group with the free extents that an existing LV can grow onto.
func spaceOf(g lvm.Group, lv lvm.LV) lvm.Group {
	if len(g.BlockSizes()) < 2 {
		return g
	}
	size := unknownBlocks
	if sizes := g.BlockSizesOf(lv); len(sizes) > 0 {
		size = slices.Max(sizes) // that of the volume's device
	}
	return onBlocks(g, size)
}

// spaceFor returns the group with the free extents for a new volume of so many extents, of a class that is not thin: those of the
// disks of one size, on which the smallest free space remains.
func spaceFor(g lvm.Group, class lvm.Class, extents lvm.Extents) lvm.Group {
	var best lvm.Group
	left := lvm.Extents(-1)
	for _, space := range spaces(g) {
		if l := largestIn(space, class) - extents; l >= 0 && (left < 0 || l < left) {
			best, left = space, l
		}
	}
	return best
}

// mixedBlocks is a part of a sentence about too small a capacity; "" if the group's disks have blocks of one size.
func mixedBlocks(g lvm.Group) string {
	sizes := g.BlockSizes()
	if len(sizes) < 2 {
		return ""
	}
	words := make([]string, 0, len(sizes))
	for _, size := range sizes {
		words = append(words, fmt.Sprint(int64(size)))
	}
	return fmt.Sprintf(" (its disks have logical blocks of %s bytes, and a volume is on disks of one size)", strings.Join(words, " and "))
}
