package lvm

import "slices"

// AllocatableExtents counts the extents that can be allocated, which is also the largest linear volume: it may lie on any number of
// runs.
func (g Group) FreeExtents() (n Extents) {
	for _, pv := range g.PVs {
		n += pv.AllocatableExtents()
	}
	return n
}

// AllocatableExtents counts the extents that can be allocated on the disk.
func (pv PV) AllocatableExtents() (n Extents) {
	for _, r := range pv.Free {
		n += r.Count
	}
	if !pv.IsAllocatable() {
		return 0
	}
	return n
}

// LongestRun is the longest run that can be allocated on the disk.
func (pv PV) LongestRun() (n Extents) {
	for _, r := range pv.Free {
		n = max(n, r.Count)
	}
	if !pv.IsAllocatable() {
		return 0
	}
	return n
}

// IsAllocatable tells whether extents of the disk can be allocated.
func (pv PV) IsAllocatable() bool { return pv.Allocatable && !pv.Missing }

// FreeRunCount counts the runs of free extents.
func (g Group) FreeRunCount() (n Bytes) {
	for _, pv := range g.PVs {
		n += Bytes(len(pv.Free))
	}
	return n
}

// Bytes is what n extents of the group hold. It does not overflow for any n that the group's disks can have.
func (g Group) Bytes(n Extents) Bytes { return Bytes(n) * g.ExtentSize }

// ExtentsFor rounds a size up to whole extents.
func (g Group) ExtentsFor(size Bytes) Extents { return Extents((size-1)/g.ExtentSize) + 1 }

// Clone copies what take changes.
func (s State) Clone() State {
	groups := slices.Clone(s.Groups)
	for i := range groups {
		groups[i] = groups[i].Clone()
	}
	return State{Groups: groups, UnreadDevices: s.UnreadDevices}
}

func (g Group) Clone() Group {
	g.LVs = slices.Clone(g.LVs)
	g.PVs = slices.Clone(g.PVs)
	for i := range g.PVs {
		g.PVs[i].Free = slices.Clone(g.PVs[i].Free)
	}
	return g
}

// End is the first extent behind the run.
func (r Run) End() Extents { return r.Start + r.Count }
