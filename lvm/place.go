package lvm

import (
	"cmp"
	"slices"
)

// withCarvings returns the state as it would be if the carvings had been made already.
func withCarvings(s State, carvings []*carving) State {
	s = s.clone()
	for _, c := range carvings {
		takeCarving(s, c)
	}
	return s
}

// takeCarving marks a carving's extents as used and its name as taken, for the specs that are planned after it.
func takeCarving(s State, c *carving) {
	for i := range s.Groups {
		g := &s.Groups[i]
		if g.UUID != c.group.UUID {
			continue
		}
		g.MDAFree -= mdaNeed(*g, c.volume.Class)
		useRanges(g, c.ranges)
		lv := LV{Name: c.volume.ID.LV, Extents: c.extents, Type: string(c.volume.Class.Layout)}
		if c.pool != nil {
			lv.Pool = c.pool.name
			takePool(g, c.pool)
		}
		v := c.volume
		v.State = StateReady
		lv.Tags = tagsOf(v)
		g.LVs = append(g.LVs, lv)
	}
}

// takePool leaves the pool as the growth makes it, if it is not like that already.
func takePool(g *Group, p *poolGrowth) {
	useRanges(g, p.home)
	useRanges(g, p.ranges)
	g.LVs = slices.DeleteFunc(g.LVs, func(lv LV) bool { return lv.Name == p.name && lv.Thin == nil })
	i := slices.IndexFunc(g.LVs, func(lv LV) bool { return lv.Name == p.name })
	if i < 0 {
		i = len(g.LVs)
		g.LVs = append(g.LVs,
			LV{Name: p.name, Tags: poolTags(p.cluster), Type: "thin-pool", Thin: &ThinPool{Data: p.name + "_tdata", Metadata: p.name + "_tmeta", ChunkSize: p.chunk, Zero: true}},
			LV{Name: p.name + "_tmeta", Extents: p.metadata, Type: "linear", Hidden: true},
			LV{Name: "lvol0" + spareSuffix, Extents: max(p.metadata, spareOf(*g)), Type: "linear", Hidden: true})
	}
	g.LVs[i].Extents = max(g.LVs[i].Extents, p.data)
}

// useRanges cuts the ranges out of what is free.
func useRanges(g *Group, ranges []peRange) {
	for _, r := range ranges {
		for j := range g.PVs {
			if r.device == g.PVs[j].Device {
				g.PVs[j].Free = without(g.PVs[j].Free, r.first, r.last)
				g.PVs[j].Zeroed = without(g.PVs[j].Zeroed, r.first, r.last)
			}
		}
	}
}

// without cuts the extents first to last out of the runs.
func without(runs []Run, first, last Extents) []Run {
	var rest []Run
	for _, r := range runs {
		end := r.Start + r.Count // the first behind it
		if before := min(end, first) - r.Start; before > 0 {
			rest = append(rest, Run{Start: r.Start, Count: before})
		}
		if start := max(r.Start, last+1); end > start {
			rest = append(rest, Run{Start: start, Count: end - start})
		}
	}
	return rest
}

// peRange is a stretch of physical extents, both ends included, as lvcreate(8) takes it: PV:first-last.
type peRange struct {
	device      string
	first, last Extents
}

// hole is a free run together with the disk that it is on.
type hole struct {
	device string
	Run
}

// head is the beginning of the hole.
func (h hole) head(n Extents) peRange {
	return peRange{device: h.device, first: h.Start, last: h.Start + n - 1}
}

// holes lists what can be allocated in the group, largest first; among equals, in the order of the disks.
func holes(g Group) []hole {
	var all []hole
	for _, pv := range g.PVs {
		if !pv.usable() {
			continue
		}
		for _, r := range pv.Free {
			all = append(all, hole{pv.Device, r})
		}
	}
	slices.SortStableFunc(all, func(a, b hole) int { return cmp.Compare(b.Count, a.Count) })
	return all
}

// smallest finds the smallest of the holes, which are sorted largest first, that holds n extents; among equals, the last.
// If none does, that is the first, the largest.
func smallest(free []hole, n Extents) int {
	i := 0
	for i+1 < len(free) && free[i+1].Count >= n {
		i++
	}
	return i
}

// linearRanges picks the extents of a linear volume: the smallest hole that holds all of it; else as few holes as can
// be, the largest ones, and for the rest again the smallest that holds it. Nil if the group has not that many.
func linearRanges(g Group, extents Extents) []peRange {
	free := holes(g)
	var ranges []peRange
	for extents > 0 {
		if len(free) == 0 {
			return nil
		}
		i := smallest(free, extents)
		n := min(free[i].Count, extents)
		ranges = append(ranges, free[i].head(n))
		extents -= n
		free = slices.Delete(free, i, i+1)
	}
	return ranges
}

// legRanges picks one run of n extents on each of as many disks as there are legs: of the disks that have such a run,
// those with most room, so that the disks fill evenly and volumes of many legs fit for longest; on each, the smallest
// run that is large enough. Nil if there are too few such disks.
func legRanges(g Group, legs int, n Extents) []peRange {
	type leg struct {
		hole
		room Extents // free on the whole disk
	}
	var all []leg
	for _, pv := range g.PVs {
		if pv.longest() >= n {
			free := holes(Group{PVs: []PV{pv}})
			all = append(all, leg{free[smallest(free, n)], pv.free()})
		}
	}
	if len(all) < legs {
		return nil
	}
	slices.SortStableFunc(all, func(a, b leg) int { return cmp.Compare(b.room, a.room) })
	ranges := make([]peRange, 0, legs)
	for _, l := range all[:legs] {
		ranges = append(ranges, l.head(n))
	}
	return ranges
}
