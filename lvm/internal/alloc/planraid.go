package alloc

import (
	"github.com/nodelvm/nodelvm/lvm"
)

// A leg of a RAID volume is an image LV, which has one extent of every row, and before it a metadata LV with superblocks and a
// bitmap of the regions with pending writes. LVM allocates both from one range.

// Regions. The bitmap has at most 2^21 bits (dm-raid), so a volume's region size limits its future size. LVM starts with 2 MiB
// and doubles it with the volume. The driver doubles it with the group, so that a volume can be extended with the group to
// sixteen times its present size.
const (
	minRegion    = 2 * lvm.MiB
	regionBits   = 21
	regionGrowth = 4 // bits
)

// RegionSize returns the region size of a new volume: at least a stripe, and at most the volume's size, because LVM and the
// kernel refuse more.
func RegionSize(g lvm.Group, class lvm.Class, extents lvm.Extents) lvm.Bytes {
	var whole lvm.Extents
	for _, pv := range g.PVs {
		whole += pv.Extents
	}
	region := minRegion
	for region < g.Bytes(whole)>>(regionBits-regionGrowth) {
		region *= 2
	}
	for region > g.Bytes(extents) {
		region /= 2
	}
	return max(region, class.StripeSize)
}

// RAIDMetadata counts the extents that LVM allocates for the metadata of a leg: 8 KiB of superblocks and one bit a region, in
// sectors (lvm2, lib/metadata/raid_manip.c, "rmeta extents").
func RAIDMetadata(g lvm.Group, legExtents lvm.Extents, region lvm.Bytes) lvm.Extents {
	regions := g.Bytes(legExtents) / region
	bytes := 8*lvm.KiB + (regions+7)/8
	bytes = (bytes + lvm.SectorSize - 1) / lvm.SectorSize * lvm.SectorSize
	return lvm.Extents((bytes + g.ExtentSize - 1) / g.ExtentSize)
}

// LegExtents counts the extents of one leg of a volume, metadata included.
func LegExtents(g lvm.Group, class lvm.Class, extents lvm.Extents) lvm.Extents {
	n := extents / class.StripeExtents()
	if class.IsRAID() {
		n += RAIDMetadata(g, n, RegionSize(g, class, extents))
	}
	return n
}

// rowsIn counts the rows that fit on legs of n extents each: the inverse of LegExtents.
func rowsIn(g lvm.Group, class lvm.Class, n lvm.Extents) lvm.Extents {
	rows := n
	for rows > 0 && LegExtents(g, class, rows*class.StripeExtents()) > n {
		rows-- // rarely repeats: the metadata has few extents
	}
	return max(0, rows)
}
