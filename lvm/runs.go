package lvm

import (
	"cmp"
	"slices"
)

// runsByPV are stretches of extents by the UUID of the physical volume; of each one ascending, disjoint and maximal.
type runsByPV map[string][]Run

// union puts runs together; they may come in any order and overlap.
func union(lists ...[]Run) []Run {
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(a, b Run) int { return cmp.Compare(a.Start, b.Start) })
	var joined []Run
	for _, r := range all {
		if last := len(joined) - 1; last >= 0 && r.Start <= joined[last].end() {
			joined[last].Count = max(joined[last].end(), r.end()) - joined[last].Start
		} else if r.Count > 0 {
			joined = append(joined, r)
		}
	}
	return joined
}

// common is what lies in both lists; each must be ascending and disjoint.
func common(a, b []Run) []Run {
	var both []Run
	for i, j := 0, 0; i < len(a) && j < len(b); {
		if start, end := max(a[i].Start, b[j].Start), min(a[i].end(), b[j].end()); start < end {
			both = append(both, Run{Start: start, Count: end - start})
		}
		if a[i].end() < b[j].end() {
			i++
		} else {
			j++
		}
	}
	return both
}

// lacking is what lies in the first list and not in the second.
func lacking(a, b []Run) []Run {
	for _, r := range b {
		a = without(a, r.Start, r.end()-1)
	}
	return a
}

// with is the union with others.
func (r runsByPV) with(others runsByPV) runsByPV {
	all := runsByPV{}
	for _, runs := range []runsByPV{r, others} {
		for pv, list := range runs {
			all[pv] = union(all[pv], list)
		}
	}
	return all
}

// less is what the others do not have.
func (r runsByPV) less(others runsByPV) runsByPV {
	rest := runsByPV{}
	for pv, list := range r {
		if left := lacking(list, others[pv]); len(left) > 0 {
			rest[pv] = left
		}
	}
	return rest
}

// countOf counts the extents of runs.
func countOf(runs []Run) (n Extents) {
	for _, r := range runs {
		n += r.Count
	}
	return n
}

// extents counts them.
func (r runsByPV) extents() (n Extents) {
	for _, runs := range r {
		n += countOf(runs)
	}
	return n
}

// runsOf turns the ranges of a command line into runs.
func runsOf(g Group, ranges []peRange) runsByPV {
	all := runsByPV{}
	for _, r := range ranges {
		for _, pv := range g.PVs {
			if pv.Device == r.device {
				all[pv.UUID] = union(all[pv.UUID], []Run{{Start: r.first, Count: r.last - r.first + 1}})
			}
		}
	}
	return all
}

// rangesOf is runsOf the other way round.
func rangesOf(g Group, runs runsByPV) (ranges []peRange) {
	for _, pv := range g.PVs {
		for _, r := range runs[pv.UUID] {
			ranges = append(ranges, hole{pv.Device, r}.head(r.Count))
		}
	}
	return ranges
}

// piece is a part of a volume that lies in one run.
type piece struct {
	pv string // UUID
	Run
	at  Extents // the first extent of the volume that lies there
	row Extents // how many extents of the volume lie at one extent of the run, on this leg and the others
}

// pieces tells where a volume's content lies. whole is false for an LV whose content may also lie elsewhere (a cache, a
// RAID in the middle of a reshape), or whose type is not known. The metadata of a RAID is no content.
func pieces(g Group, lv LV) (all []piece, whole bool) {
	for _, seg := range lv.Segments {
		row := Extents(dataLegs(seg))
		if row == 0 || seg.Extents%row != 0 {
			return nil, false
		}
		for _, area := range seg.Areas {
			run := Run{Start: area.Start, Count: seg.Extents / row}
			if area.LV == "" {
				all = append(all, piece{area.PV, run, seg.Start, row})
				continue
			}
			image := g.named(area.LV)
			if image == nil || image.Extents != run.Count || len(lv.Segments) > 1 {
				return nil, false
			}
			parts, whole := pieces(g, *image)
			if !whole {
				return nil, false
			}
			for _, p := range parts {
				all = append(all, piece{p.pv, p.Run, p.at * row, p.row * row})
			}
		}
	}
	return all, len(all) > 0
}

// dataLegs counts the legs of a segment that hold different data; 0 for a type that is not known here.
func dataLegs(seg Segment) int {
	legs := len(seg.Areas)
	switch layout := Layout(raidLevel(seg.Type)); {
	case seg.Type == "linear":
		return 1
	case seg.Type == "striped":
		return legs
	case layout == LayoutRAID1:
		return 1
	case layout == LayoutRAID5, layout == LayoutRAID6:
		return max(0, legs-rules[layout].parity)
	case layout == LayoutRAID10:
		return legs / 2
	}
	return 0
}

// raidLevel is a segment type without its variant: raid5 for raid5_ls.
func raidLevel(segmentType string) string {
	for i := range segmentType {
		if segmentType[i] == '_' {
			return segmentType[:i]
		}
	}
	return segmentType
}

// contentOf is where a volume's content lies, nil if that cannot be told for all of it.
func contentOf(g Group, lv LV) runsByPV {
	parts, whole := pieces(g, lv)
	if !whole {
		return nil
	}
	runs := runsByPV{}
	for _, p := range parts {
		runs[p.pv] = union(runs[p.pv], []Run{p.Run})
	}
	return runs
}

// stretchesOn are the stretches of a volume, in its own extents, that lie on these runs; all of it where that cannot be told.
func stretchesOn(g Group, lv LV, runs runsByPV) []Run {
	parts, whole := pieces(g, lv)
	if !whole {
		return []Run{{Start: 0, Count: lv.Extents}}
	}
	var all []Run
	for _, p := range parts {
		for _, r := range common([]Run{p.Run}, runs[p.pv]) {
			all = append(all, Run{Start: p.at + (r.Start-p.Start)*p.row, Count: r.Count * p.row})
		}
	}
	return union(all)
}

// freeRuns is what is free on the disks that are there. A disk that is away may come back with another content.
func freeRuns(g Group) runsByPV {
	free := runsByPV{}
	for _, pv := range g.PVs {
		if !pv.Missing && !pv.Silent && len(pv.Free) > 0 {
			free[pv.UUID] = pv.Free
		}
	}
	return free
}

// onlyZeroed is the group as if nothing were free but what is known to be zero.
func onlyZeroed(g Group) Group {
	g.PVs = slices.Clone(g.PVs)
	for i := range g.PVs {
		g.PVs[i].Free = common(g.PVs[i].Free, g.PVs[i].Zeroed)
	}
	return g
}

// unzeroedIn is what of the ranges is not known to be zero.
func unzeroedIn(g Group, ranges []peRange) runsByPV {
	known := runsByPV{}
	for _, pv := range g.PVs {
		known[pv.UUID] = pv.Zeroed
	}
	return runsOf(g, ranges).less(known)
}

// away tells whether a part of the runs is on a disk that is not there.
func (r runsByPV) away(g Group) bool {
	return len(r) > 0 && slices.ContainsFunc(g.PVs, func(pv PV) bool { return (pv.Missing || pv.Silent) && len(r[pv.UUID]) > 0 })
}

// within is what of the runs is free in the group.
func (r runsByPV) within(g Group) runsByPV {
	rest := runsByPV{}
	for pv, free := range freeRuns(g) {
		if both := common(free, r[pv]); len(both) > 0 {
			rest[pv] = both
		}
	}
	return rest
}
