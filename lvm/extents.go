package lvm

import "slices"

// free counts the extents that can be allocated, which is also the largest linear volume: it may lie on any number of
// runs.
func (g Group) free() (n Extents) {
	for _, pv := range g.PVs {
		n += pv.free()
	}
	return n
}

// free counts the extents that can be allocated on the disk.
func (pv PV) free() (n Extents) {
	for _, r := range pv.Free {
		n += r.Count
	}
	if !pv.usable() {
		return 0
	}
	return n
}

// longest is the longest run that can be allocated on the disk.
func (pv PV) longest() (n Extents) {
	for _, r := range pv.Free {
		n = max(n, r.Count)
	}
	if !pv.usable() {
		return 0
	}
	return n
}

// usable tells whether extents of the disk can be allocated.
func (pv PV) usable() bool { return pv.Allocatable && !pv.Missing }

// runs counts the runs of free extents.
func (g Group) runs() (n Bytes) {
	for _, pv := range g.PVs {
		n += Bytes(len(pv.Free))
	}
	return n
}

// bytes is what n extents of the group hold. It does not overflow for any n that the group's disks can have.
func (g Group) bytes(n Extents) Bytes { return Bytes(n) * g.ExtentSize }

// round rounds a size up to whole extents.
func (g Group) round(size Bytes) Extents { return Extents((size-1)/g.ExtentSize) + 1 }

// clone copies what take changes.
func (s State) clone() State {
	groups := slices.Clone(s.Groups)
	for i := range groups {
		groups[i] = groups[i].clone()
	}
	return State{Groups: groups, Unread: s.Unread}
}

func (g Group) clone() Group {
	g.LVs = slices.Clone(g.LVs)
	g.PVs = slices.Clone(g.PVs)
	for i := range g.PVs {
		g.PVs[i].Free = slices.Clone(g.PVs[i].Free)
	}
	return g
}

// end is the first extent behind the run.
func (r Run) end() Extents { return r.Start + r.Count }
