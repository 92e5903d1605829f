package lvm

import "slices"

// FreeExtents returns the number of extents that LVM can allocate. That is also the largest linear volume, which needs no
// contiguous extents.
func (g Group) FreeExtents() (n Extents) {
	for _, pv := range g.PVs {
		n += pv.AllocatableExtents()
	}
	return n
}

// AllocatableExtents returns the number of the disk's extents that LVM can allocate.
func (pv PV) AllocatableExtents() (n Extents) {
	for _, r := range pv.Free {
		n += r.Count
	}
	if !pv.IsAllocatable() {
		return 0
	}
	return n
}

// LongestRun returns the length of the disk's longest extent range that LVM can allocate.
func (pv PV) LongestRun() (n Extents) {
	for _, r := range pv.Free {
		n = max(n, r.Count)
	}
	if !pv.IsAllocatable() {
		return 0
	}
	return n
}

// IsAllocatable reports whether LVM can allocate extents of the disk.
func (pv PV) IsAllocatable() bool { return pv.Allocatable && !pv.Missing }

// FreeRunCount returns the number of free extent ranges.
func (g Group) FreeRunCount() (n Bytes) {
	for _, pv := range g.PVs {
		n += Bytes(len(pv.Free))
	}
	return n
}

// Bytes returns the size of n extents. It does not overflow for any n that the volume group's disks can have.
func (g Group) Bytes(n Extents) Bytes { return Bytes(n) * g.ExtentSize }

// ExtentsFor returns a size in extents, rounded up.
func (g Group) ExtentsFor(size Bytes) Extents { return Extents((size-1)/g.ExtentSize) + 1 }

// BlockSizes returns the logical block sizes of the present disks, ascending, each once.
func (g Group) BlockSizes() (sizes []Bytes) {
	for _, pv := range g.PVs {
		if !pv.Missing {
			sizes = append(sizes, pv.BlockSize)
		}
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// BlockSizesOf returns the logical block sizes of the present disks that an LV and its parts are on, but not those of a thin volume's
// pool, ascending, each once.
func (g Group) BlockSizesOf(lv LV) []Bytes {
	used := map[string]bool{}
	for _, part := range Components(g, lv) {
		for _, seg := range part.Segments {
			for _, area := range slices.Concat(seg.Areas, seg.Metadata) {
				used[area.PV] = true
			}
		}
	}
	return Group{PVs: slices.DeleteFunc(slices.Clone(g.PVs), func(pv PV) bool { return !used[pv.UUID] })}.BlockSizes()
}

// Clone copies the slices that an allocation changes. The copy lacks Unresponsive, Skipped, Devices and PVs.
func (s State) Clone() State {
	groups := slices.Clone(s.Groups)
	for i := range groups {
		groups[i] = groups[i].Clone()
	}
	return State{Groups: groups, UnreadDevices: s.UnreadDevices, MissingTargets: s.MissingTargets}
}

func (g Group) Clone() Group {
	g.LVs = slices.Clone(g.LVs)
	g.PVs = slices.Clone(g.PVs)
	for i := range g.PVs {
		g.PVs[i].Free = slices.Clone(g.PVs[i].Free)
	}
	return g
}

// End returns the first extent after the run.
func (r Run) End() Extents { return r.Start + r.Count }
