package alloc

import (
	"cmp"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
)

// WithAllocations returns the state as it would be if the carvings had been made already.
func WithAllocations(s lvm.State, carvings []*Allocation) lvm.State {
	s = s.Clone()
	for _, c := range carvings {
		ApplyAllocation(s, c)
	}
	return s
}

// ApplyAllocation marks a carving's extents as used and its name as taken, for the specs that are planned after it.
func ApplyAllocation(s lvm.State, c *Allocation) {
	for i := range s.Groups {
		g := &s.Groups[i]
		if g.UUID != c.Group.UUID {
			continue
		}
		g.MDAFree -= MetadataNeed(*g, c.Volume.Class)
		UseRanges(g, c.Ranges)
		lv := lvm.LV{Name: c.Volume.ID.LV, Extents: c.Extents, Type: string(c.Volume.Class.Layout)}
		if c.Pool != nil {
			lv.Pool = c.Pool.Name
			takePool(g, c.Pool)
		}
		v := c.Volume
		v.State = lvm.StateReady
		lv.Tags = lvm.VolumeTags(v)
		g.LVs = append(g.LVs, lv)
	}
}

// takePool leaves the pool as the growth makes it, if it is not like that already.
func takePool(g *lvm.Group, p *PoolGrowth) {
	UseRanges(g, p.Home)
	UseRanges(g, p.Ranges)
	g.LVs = slices.DeleteFunc(g.LVs, func(lv lvm.LV) bool { return lv.Name == p.Name && lv.Thin == nil })
	i := slices.IndexFunc(g.LVs, func(lv lvm.LV) bool { return lv.Name == p.Name })
	if i < 0 {
		i = len(g.LVs)
		g.LVs = append(g.LVs,
			lvm.LV{Name: p.Name, Tags: lvm.PoolTags(p.Cluster), Type: "thin-pool", Thin: &lvm.ThinPool{Data: p.Name + "_tdata", Metadata: p.Name + "_tmeta", ChunkSize: p.Chunk, Zero: true}},
			lvm.LV{Name: p.Name + "_tmeta", Extents: p.Metadata, Type: "linear", Hidden: true},
			lvm.LV{Name: "lvol0" + SpareSuffix, Extents: max(p.Metadata, spareOf(*g)), Type: "linear", Hidden: true})
	}
	g.LVs[i].Extents = max(g.LVs[i].Extents, p.Data)
}

// UseRanges cuts the ranges out of what is free.
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

// without cuts the extents first to last out of the runs.
func without(runs []lvm.Run, first, last lvm.Extents) []lvm.Run {
	var rest []lvm.Run
	for _, r := range runs {
		end := r.Start + r.Count // the first behind it
		if before := min(end, first) - r.Start; before > 0 {
			rest = append(rest, lvm.Run{Start: r.Start, Count: before})
		}
		if start := max(r.Start, last+1); end > start {
			rest = append(rest, lvm.Run{Start: start, Count: end - start})
		}
	}
	return rest
}

// ExtentRange is a stretch of physical extents, both ends included, as lvcreate(8) takes it: PV:first-last.
type ExtentRange struct {
	Device      string
	First, Last lvm.Extents
}

// FreeExtent is a free run together with the disk that it is on.
type FreeExtent struct {
	Device string
	lvm.Run
}

// Head is the beginning of the hole.
func (h FreeExtent) Head(n lvm.Extents) ExtentRange {
	return ExtentRange{Device: h.Device, First: h.Start, Last: h.Start + n - 1}
}

// FreeExtents lists what can be allocated in the group, largest first; among equals, in the order of the disks.
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

// smallest finds the smallest of the holes, which are sorted largest first, that holds n extents; among equals, the last.
// If none does, that is the first, the largest.
func smallest(free []FreeExtent, n lvm.Extents) int {
	i := 0
	for i+1 < len(free) && free[i+1].Count >= n {
		i++
	}
	return i
}

// LinearRanges picks the extents of a linear volume: the smallest hole that holds all of it; else as few holes as can
// be, the largest ones, and for the rest again the smallest that holds it. Nil if the group has not that many.
func LinearRanges(g lvm.Group, extents lvm.Extents) []ExtentRange {
	free := FreeExtents(g)
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

// legRanges picks one run of n extents on each of as many disks as there are legs: of the disks that have such a run,
// those with most room, so that the disks fill evenly and volumes of many legs fit for longest; on each, the smallest
// run that is large enough. Nil if there are too few such disks.
func legRanges(g lvm.Group, legs int, n lvm.Extents) []ExtentRange {
	type leg struct {
		FreeExtent
		room lvm.Extents // free on the whole disk
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
