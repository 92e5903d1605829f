package alloc

import (
	"cmp"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
)

// RunsByPV are extent ranges by the UUID of the physical volume; those of one are ascending, disjoint and maximal.
type RunsByPV map[string][]lvm.Run

// Union merges runs, which may come in any order and overlap.
func Union(lists ...[]lvm.Run) []lvm.Run {
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(a, b lvm.Run) int { return cmp.Compare(a.Start, b.Start) })
	var joined []lvm.Run
	for _, r := range all {
		if last := len(joined) - 1; last >= 0 && r.Start <= joined[last].End() {
			joined[last].Count = max(joined[last].End(), r.End()) - joined[last].Start
		} else if r.Count > 0 {
			joined = append(joined, r)
		}
	}
	return joined
}

// Common returns the intersection of two lists; each must be ascending and disjoint.
func Common(a, b []lvm.Run) []lvm.Run {
	var both []lvm.Run
	for i, j := 0, 0; i < len(a) && j < len(b); {
		if start, end := max(a[i].Start, b[j].Start), min(a[i].End(), b[j].End()); start < end {
			both = append(both, lvm.Run{Start: start, Count: end - start})
		}
		if a[i].End() < b[j].End() {
			i++
		} else {
			j++
		}
	}
	return both
}

// Lacking returns the part of the first list that is not in the second.
func Lacking(a, b []lvm.Run) []lvm.Run {
	for _, r := range b {
		a = without(a, r.Start, r.End()-1)
	}
	return a
}

// With returns the union with others.
func (r RunsByPV) With(others RunsByPV) RunsByPV {
	all := RunsByPV{}
	for _, runs := range []RunsByPV{r, others} {
		for pv, list := range runs {
			all[pv] = Union(all[pv], list)
		}
	}
	return all
}

// less returns the part that the others lack.
func (r RunsByPV) less(others RunsByPV) RunsByPV {
	rest := RunsByPV{}
	for pv, list := range r {
		if left := Lacking(list, others[pv]); len(left) > 0 {
			rest[pv] = left
		}
	}
	return rest
}

// CountOf counts the extents of runs.
func CountOf(runs []lvm.Run) (n lvm.Extents) {
	for _, r := range runs {
		n += r.Count
	}
	return n
}

func (r RunsByPV) Extents() (n lvm.Extents) {
	for _, runs := range r {
		n += CountOf(runs)
	}
	return n
}

// runsOf converts the ranges of a command line to runs.
func runsOf(g lvm.Group, ranges []ExtentRange) RunsByPV {
	all := RunsByPV{}
	for _, r := range ranges {
		for _, pv := range g.PVs {
			if pv.Device == r.Device {
				all[pv.UUID] = Union(all[pv.UUID], []lvm.Run{{Start: r.First, Count: r.Last - r.First + 1}})
			}
		}
	}
	return all
}

// RangesOf is the inverse of runsOf.
func RangesOf(g lvm.Group, runs RunsByPV) (ranges []ExtentRange) {
	for _, pv := range g.PVs {
		for _, r := range runs[pv.UUID] {
			ranges = append(ranges, FreeExtent{pv.Device, r}.Head(r.Count))
		}
	}
	return ranges
}

// piece is a part of a volume in one run.
type piece struct {
	pv string // UUID
	lvm.Run
	at  lvm.Extents // the volume's first extent in the run
	row lvm.Extents // the volume's extents for each extent of the run, over all legs
}

// pieces returns where a volume's content is. whole is false for an LV whose content may also be elsewhere (a cache, a RAID
// during a reshape), or whose type is unknown. The metadata of a RAID is no content.
func pieces(g lvm.Group, lv lvm.LV) (all []piece, whole bool) {
	for _, seg := range lv.Segments {
		row := lvm.Extents(dataLegs(seg))
		if row == 0 || seg.Extents%row != 0 {
			return nil, false
		}
		for _, area := range seg.Areas {
			run := lvm.Run{Start: area.Start, Count: seg.Extents / row}
			if area.LV == "" {
				all = append(all, piece{area.PV, run, seg.Start, row})
				continue
			}
			image := g.FindLV(area.LV)
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

// dataLegs counts the legs of a segment with different data; 0 for an unknown type.
func dataLegs(seg lvm.Segment) int {
	legs := len(seg.Areas)
	switch layout := lvm.Layout(raidLevel(seg.Type)); {
	case seg.Type == "linear":
		return 1
	case seg.Type == "striped":
		return legs
	case layout == lvm.LayoutRAID1:
		return 1
	case layout == lvm.LayoutRAID5, layout == lvm.LayoutRAID6:
		return max(0, legs-layout.ParityLegs())
	case layout == lvm.LayoutRAID10:
		return legs / 2
	}
	return 0
}

// raidLevel returns a segment type without its variant: raid5 for raid5_ls.
func raidLevel(segmentType string) string {
	for i := range segmentType {
		if segmentType[i] == '_' {
			return segmentType[:i]
		}
	}
	return segmentType
}

// ContentOf returns where a volume's content is; nil unless all of it is known.
func ContentOf(g lvm.Group, lv lvm.LV) RunsByPV {
	parts, whole := pieces(g, lv)
	if !whole {
		return nil
	}
	runs := RunsByPV{}
	for _, p := range parts {
		runs[p.pv] = Union(runs[p.pv], []lvm.Run{p.Run})
	}
	return runs
}

// RangesOn returns the ranges of a volume, in its logical extents, that are on these runs; the whole volume if it is unknown.
func RangesOn(g lvm.Group, lv lvm.LV, runs RunsByPV) []lvm.Run {
	parts, whole := pieces(g, lv)
	if !whole {
		return []lvm.Run{{Start: 0, Count: lv.Extents}}
	}
	var all []lvm.Run
	for _, p := range parts {
		for _, r := range Common([]lvm.Run{p.Run}, runs[p.pv]) {
			all = append(all, lvm.Run{Start: p.at + (r.Start-p.Start)*p.row, Count: r.Count * p.row})
		}
	}
	return Union(all)
}

// FreeRuns returns the free extents on present disks. A missing disk may return with other content.
func FreeRuns(g lvm.Group) RunsByPV {
	free := RunsByPV{}
	for _, pv := range g.PVs {
		if !pv.Missing && !pv.Unresponsive && len(pv.Free) > 0 {
			free[pv.UUID] = pv.Free
		}
	}
	return free
}

// onlyZeroed returns the group with only the free extents that are known to be zero.
func onlyZeroed(g lvm.Group) lvm.Group {
	g.PVs = slices.Clone(g.PVs)
	for i := range g.PVs {
		g.PVs[i].Free = Common(g.PVs[i].Free, g.PVs[i].Zeroed)
	}
	return g
}

// UnzeroedIn returns the part of the ranges that is not known to be zero.
func UnzeroedIn(g lvm.Group, ranges []ExtentRange) RunsByPV {
	known := RunsByPV{}
	for _, pv := range g.PVs {
		known[pv.UUID] = pv.Zeroed
	}
	return runsOf(g, ranges).less(known)
}

// Away reports whether a part of the runs is on a missing disk.
func (r RunsByPV) Away(g lvm.Group) bool {
	return slices.ContainsFunc(g.PVs, func(pv lvm.PV) bool { return (pv.Missing || pv.Unresponsive) && len(r[pv.UUID]) > 0 })
}

// Within returns the part of the runs that is free in the group.
func (r RunsByPV) Within(g lvm.Group) RunsByPV {
	rest := RunsByPV{}
	for pv, free := range FreeRuns(g) {
		if both := Common(free, r[pv]); len(both) > 0 {
			rest[pv] = both
		}
	}
	return rest
}
