package alloc

import (
	"github.com/nodelvm/nodelvm/lvm"
)

// A leg of a RAID volume is an LV with its extents of every row, its image, and before it an LV with the RAID's own
// metadata: superblocks, and a bitmap of the regions that are being written. LVM takes both from one run.

// Regions. The bitmap has at most 2^21 bits (dm-raid), so a volume's region size bounds how far it can ever grow.
// LVM begins with 2 MiB and doubles it with the volume; here it is doubled with the group, and so far that a volume
// can grow with the group to sixteen times its present size.
const (
	minRegion    = 2 * lvm.MiB
	regionBits   = 21
	regionGrowth = 4 // bits
)

// RegionSize is the region size for a new volume of so many extents: never more than the volume itself, which neither
// LVM nor the kernel take, and never less than a stripe.
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

// RAIDMetadata is how many extents of a leg LVM sets aside for the metadata of a leg with so many extents of data:
// 8 KiB of superblocks and one bit a region, in sectors (lvm2, lib/metadata/raid_manip.c, "rmeta extents").
func RAIDMetadata(g lvm.Group, legExtents lvm.Extents, region lvm.Bytes) lvm.Extents {
	regions := g.Bytes(legExtents) / region
	bytes := 8*lvm.KiB + (regions+7)/8
	bytes = (bytes + lvm.SectorSize - 1) / lvm.SectorSize * lvm.SectorSize
	return lvm.Extents((bytes + g.ExtentSize - 1) / g.ExtentSize)
}

// LegExtents is what one leg of a volume takes of a disk.
func LegExtents(g lvm.Group, class lvm.Class, extents lvm.Extents) lvm.Extents {
	n := extents / class.StripeExtents()
	if class.IsRAID() {
		n += RAIDMetadata(g, n, RegionSize(g, class, extents))
	}
	return n
}

// rowsIn is how many rows fit on legs of n extents each: LegExtents the other way round.
func rowsIn(g lvm.Group, class lvm.Class, n lvm.Extents) lvm.Extents {
	rows := n
	for rows > 0 && LegExtents(g, class, rows*class.StripeExtents()) > n {
		rows-- // seldom more than once: the metadata takes few extents
	}
	return max(0, rows)
}
