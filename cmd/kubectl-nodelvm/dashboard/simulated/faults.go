package simulated

import (
	"cmp"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// Fail removes a disk of a node, and adds the conditions that a driver then reports.
func (s *Source) Fail(node string, disk int) {
	s.Change(node, func(page *report.Node) {
		g := &page.Groups[0]
		g.PVs = slices.Clone(g.PVs)
		pv := &g.PVs[disk]
		fault := func(condition lvm.ConditionType, volume, message string) {
			page.Conditions = append(page.Conditions, report.Condition{Type: string(condition), Group: g.Name, Volume: volume, Text: message})
		}
		fault(lvm.ConditionPhysicalVolumeMissing, "", "volume group vg-data has a missing physical volume ("+pv.UUID+", last seen as "+pv.Device+"): the driver creates nothing in it until the disk is back")
		lost := map[string]bool{}
		for _, r := range pv.Allocated {
			lost[cmp.Or(r.Owner, r.LV)] = true
		}
		for _, v := range page.Volumes {
			switch {
			case !lost[cmp.Or(v.Pool, v.LV)]:
			case v.Layout == string(lvm.LayoutRAID1):
				fault(lvm.ConditionVolumeDegraded, v.ID, "1 of its 2 legs are on the missing physical volume "+pv.UUID+": all its data is there, with less redundancy; reconnect the disk, or replace the legs with lvconvert --repair")
			default:
				fault(lvm.ConditionVolumeDataMissing, v.ID, "a part of its data is on the missing physical volume "+pv.UUID+": reconnect the disk, or restore the volume from a backup")
			}
		}
		for _, free := range pv.Free {
			g.Free -= lvm.Bytes(free.Count) * extent
		}
		g.Size -= lvm.Bytes(pv.Extents) * extent
		pv.Missing, pv.Device = true, ""
	})
}

// FillPool makes the thin pool of a node nearly full.
func (s *Source) FillPool(node string) {
	s.Change(node, func(page *report.Node) {
		g := &page.Groups[0]
		g.Pools = slices.Clone(g.Pools)
		g.Pools[0].Used = g.Pools[0].Size*91/100 + 1 // a percent is rounded down
		page.Conditions = append(page.Conditions, report.Condition{Type: string(lvm.ConditionThinPoolNearlyFull), Group: g.Name, Pool: g.Pools[0].Name,
			Text: "thin pool vg-data/nodelvm-thin is nearly full: data 91% of 256 GiB; delete snapshots or volumes, or extend the pool (lvextend -L+SIZE vg-data/nodelvm-thin)"})
	})
}
