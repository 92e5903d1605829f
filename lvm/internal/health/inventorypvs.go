package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

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

// notAcceptedAfter is longer than another driver's raw block volume is on the node before the kubelet shows that it is a pod's.
const notAcceptedAfter = 2 * time.Minute

// notAccepted returns one condition for the physical volumes that the driver ignores.
func notAccepted(s lvm.State, now time.Time) []lvm.Condition {
	var which, devices []string
	for _, u := range s.Unaccepted {
		if now.Sub(u.Since) < notAcceptedAfter {
			continue
		}
		which = append(which, fmt.Sprintf("%s (physical volume %s, %s): %s", u.Device, u.PV, u.Identity, u.Reason))
		devices = append(devices, u.Device)
	}
	if len(which) == 0 {
		return nil
	}
	return []lvm.Condition{{Type: lvm.ConditionPhysicalVolumeNotAccepted, Cause: strings.Join(devices, " "), Text: fmt.Sprintf(
		"the driver ignores %s. If it is a disk of this node for the driver's volumes, run in the driver's container on this node: nodelvm disks accept %s", strings.Join(which, "; "), devices[0])}}
}
