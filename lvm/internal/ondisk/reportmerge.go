package ondisk

import (
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
)

// completedBy adds the groups that only LVM's report could read to a direct reading, which wins for all others.
func completedBy(direct, report lvm.State) lvm.State {
	return merge(direct, direct.Groups, onDevices(direct, report.Groups))
}

// overruledBy is completedBy for a direct reading that was found to differ: the report wins. LVM may not open an unresponsive
// device, so the report lacks a group on such devices only: the direct reading has its last values, and nothing changes them.
func overruledBy(direct, report lvm.State) lvm.State {
	silent := slices.DeleteFunc(slices.Clone(direct.Groups), func(g lvm.Group) bool { return lvm.CheckResponsive(g) == nil })
	return merge(direct, onDevices(direct, report.Groups), silent)
}

// merge returns the direct reading of the devices, with the first groups, and the others that these lack.
func merge(direct lvm.State, first, others []lvm.Group) lvm.State {
	direct.Groups = slices.Clone(first)
	for _, g := range others {
		if groupByUUID(direct, g.UUID) == nil {
			direct.Groups = append(direct.Groups, g)
		}
	}
	sortState(&direct)
	return direct
}

// onDevices returns the groups of a report with what the direct reading knows of their devices: LVM sees only one copy of a disk,
// and may not open an unresponsive one.
func onDevices(direct lvm.State, groups []lvm.Group) []lvm.Group {
	groups = slices.Clone(groups)
	found := map[string]lvm.FoundPV{}
	for _, pv := range direct.PVs {
		found[pv.UUID] = pv
	}
	unknown := unknownDevices(direct)
	for i := range groups {
		g := &groups[i]
		if read := groupByUUID(direct, g.UUID); read != nil {
			g.Tie = read.Tie
		}
		var h restrictions
		g.PVs = slices.Clone(g.PVs)
		for j := range g.PVs {
			pv := &g.PVs[j]
			if on, is := found[pv.UUID]; is {
				h.addFound(pv, on)
			} else if pv.Missing && pv.ReappearedDevice == "" && len(unknown) > 0 {
				h.silent = append(h.silent, describeUnknownDevice(pv.UUID, unknown))
			}
		}
		switch {
		case len(h.silent) > 0:
			g.Problem = h.problem(g.Name)
		case g.Problem == "" && len(h.duplicates) > 0:
			g.Problem = h.problem(g.Name)
		case g.Problem == "":
			g.Problem = g.Tie
		}
	}
	return groups
}

// addFound adds to a reported PV what its devices show.
func (h *restrictions) addFound(pv *lvm.PV, on lvm.FoundPV) {
	pv.MetadataUnreadable, pv.BlockSize = on.MetadataUnreadable, on.BlockSize
	switch {
	case on.Unresponsive:
		pv.Unresponsive, pv.Missing, pv.Device = true, false, on.Devices[0]
		h.silent = append(h.silent, lvm.DescribeUnresponsive(pv.Device))
	case !pv.Missing:
		pv.Device = on.Devices[0]
	}
	if len(on.Devices) > 1 {
		pv.DuplicateDevices = on.Devices
		h.duplicates = append(h.duplicates, lvm.DescribeDuplicatePV(pv.UUID, slices.Clone(on.Devices)...))
	}
}

// unknownDevices lists the unresponsive devices that never showed whether they carry a PV.
func unknownDevices(s lvm.State) []string {
	return slices.DeleteFunc(slices.Clone(s.Unresponsive), func(device string) bool {
		return slices.ContainsFunc(s.PVs, func(pv lvm.FoundPV) bool { return slices.Contains(pv.Devices, device) })
	})
}
