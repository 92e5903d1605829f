package health

import (
	"cmp"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// pvEntries lists the physical volumes of a group with what occupies their extents, ascending.
func pvEntries(g lvm.Group) []report.PV {
	entries := make([]report.PV, 0, len(g.PVs))
	at := map[string]int{} // in entries, by UUID
	for i, pv := range g.PVs {
		e := report.PV{UUID: pv.UUID, Device: pv.Device, Extents: int64(pv.Extents), Missing: pv.Missing, Unresponsive: pv.Unresponsive}
		for _, run := range pv.Free {
			e.Free = append(e.Free, report.ExtentRange{Start: int64(run.Start), Count: int64(run.Count)})
		}
		entries, at[pv.UUID] = append(entries, e), i
	}
	owners := ownersOf(g)
	for _, lv := range g.LVs {
		for _, seg := range lv.Segments {
			for _, area := range append(slices.Clone(seg.Areas), seg.Metadata...) {
				i, known := at[area.PV]
				if area.PV == "" || !known {
					continue
				}
				entries[i].Allocated = append(entries[i].Allocated,
					report.ExtentRange{Start: int64(area.Start), Count: legExtents(seg), LV: lv.Name, Owner: owners[lv.Name]})
			}
		}
	}
	for i := range entries {
		slices.SortFunc(entries[i].Allocated, func(a, b report.ExtentRange) int { return cmp.Compare(a.Start, b.Start) })
	}
	return entries
}

// legExtents is the length of each leg that a segment has on a PV: only the legs of stripes share the segment's extents.
func legExtents(seg lvm.Segment) int64 {
	if seg.Type == "striped" {
		return int64(seg.Extents) / int64(len(seg.Areas))
	}
	return int64(seg.Extents)
}

// ownersOf maps each hidden LV to the visible LV that it is a component of.
func ownersOf(g lvm.Group) map[string]string {
	above, hidden := map[string]string{}, map[string]bool{}
	for _, lv := range g.LVs {
		hidden[lv.Name] = lv.Hidden
		if lv.Thin != nil {
			above[lv.Thin.Data], above[lv.Thin.Metadata] = lv.Name, lv.Name
		}
		for _, seg := range lv.Segments {
			for _, area := range append(slices.Clone(seg.Areas), seg.Metadata...) {
				if area.LV != "" {
					above[area.LV] = lv.Name
				}
			}
		}
	}
	owners := map[string]string{}
	for name := range above {
		owner := name
		for range len(above) { // metadata that a tenant forged could form a cycle
			if !hidden[owner] || above[owner] == "" {
				break
			}
			owner = above[owner]
		}
		if owner != name {
			owners[name] = owner
		}
	}
	return owners
}
