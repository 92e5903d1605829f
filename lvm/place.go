package lvm

import (
	"cmp"
	"slices"
)

// clone copies what take changes.
func (s State) clone() State {
	groups := slices.Clone(s.Groups)
	for i := range groups {
		groups[i].LVs = slices.Clone(groups[i].LVs)
		groups[i].PVs = slices.Clone(groups[i].PVs)
		for j := range groups[i].PVs {
			groups[i].PVs[j].Free = slices.Clone(groups[i].PVs[j].Free)
		}
	}
	return State{Groups: groups, Unread: s.Unread}
}

// reserve returns the state as it would be if the carvings had been made already.
func (s State) reserve(carvings []*carving) State {
	s = s.clone()
	for _, c := range carvings {
		s.take(c)
	}
	return s
}

// take marks a carving's extents as used and its name as taken, for the specs that are planned after it.
func (s State) take(c *carving) {
	for i := range s.Groups {
		g := &s.Groups[i]
		if g.UUID != c.group.UUID {
			continue
		}
		v := c.volume
		v.State = StateReady
		g.LVs = append(g.LVs, LV{Name: v.ID.LV, Tags: tagsOf(v), Extents: c.extents, Type: "linear"})
		g.MDAFree -= mdaNeed(*g)
		for j := range g.PVs {
			for _, r := range c.ranges {
				if r.device == g.PVs[j].Device {
					g.PVs[j].Free = without(g.PVs[j].Free, r.first, r.last)
				}
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

// hole is a free run together with the disk that it is on.
type hole struct {
	device string
	Run
}

// holes lists what can be allocated in the group, largest first; among equals, in the order of the disks.
func holes(g Group) []hole {
	var all []hole
	for _, pv := range g.PVs {
		if !pv.Allocatable || pv.Missing {
			continue
		}
		for _, r := range pv.Free {
			all = append(all, hole{pv.Device, r})
		}
	}
	slices.SortStableFunc(all, func(a, b hole) int { return cmp.Compare(b.Count, a.Count) })
	return all
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
		i := 0
		for i+1 < len(free) && free[i+1].Count >= extents {
			i++
		}
		h := free[i]
		n := min(h.Count, extents)
		ranges = append(ranges, peRange{device: h.device, first: h.Start, last: h.Start + n - 1})
		extents -= n
		free = slices.Delete(free, i, i+1)
	}
	return ranges
}
