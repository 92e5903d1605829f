package alloc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// A group can have disks with logical blocks of several sizes (lvm.conf, devices/allow_mixed_block_sizes). A volume on both has the
// larger blocks: a file system that was created on smaller ones can then be neither extended nor mounted. So a new volume is on disks
// of one size, and grows onto disks of that size.

// unknownBlocks is the block size of an LV of which no disk is known.
const unknownBlocks = lvm.Bytes(-1)

// spaces returns the group for each size of blocks, with the free extents on disks of that size only.
func spaces(g lvm.Group) []lvm.Group {
	sizes := g.BlockSizes()
	if len(sizes) < 2 {
		return []lvm.Group{g}
	}
	all := make([]lvm.Group, 0, len(sizes))
	for _, size := range sizes {
		all = append(all, onBlocks(g, size))
	}
	return all
}

// onBlocks returns the group with the free extents on disks with blocks of this size only.
func onBlocks(g lvm.Group, size lvm.Bytes) lvm.Group {
	g.PVs = slices.Clone(g.PVs)
	for i := range g.PVs {
		if pv := &g.PVs[i]; pv.BlockSize != size {
			pv.Free, pv.Zeroed = nil, nil
		}
	}
	return g
}

// spaceOf returns the group with the free extents that an existing LV can grow onto.
func spaceOf(g lvm.Group, lv lvm.LV) lvm.Group {
	if len(g.BlockSizes()) < 2 {
		return g
	}
	size := unknownBlocks
	if sizes := g.BlockSizesOf(lv); len(sizes) > 0 {
		size = slices.Max(sizes) // that of the volume's device
	}
	return onBlocks(g, size)
}

// spaceFor returns the group with the free extents for a new volume of so many extents, of a class that is not thin: those of the
// disks of one size, on which the smallest free space remains.
func spaceFor(g lvm.Group, class lvm.Class, extents lvm.Extents) lvm.Group {
	var best lvm.Group
	left := lvm.Extents(-1)
	for _, space := range spaces(g) {
		if l := largestIn(space, class) - extents; l >= 0 && (left < 0 || l < left) {
			best, left = space, l
		}
	}
	return best
}

// mixedBlocks is a part of a sentence about too small a capacity; "" if the group's disks have blocks of one size.
func mixedBlocks(g lvm.Group) string {
	sizes := g.BlockSizes()
	if len(sizes) < 2 {
		return ""
	}
	words := make([]string, 0, len(sizes))
	for _, size := range sizes {
		words = append(words, fmt.Sprint(int64(size)))
	}
	return fmt.Sprintf(" (its disks have logical blocks of %s bytes, and a volume is on disks of one size)", strings.Join(words, " and "))
}
