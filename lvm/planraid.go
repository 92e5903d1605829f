package lvm

// A leg of a RAID volume is an LV with its extents of every row, its image, and before it an LV with the RAID's own
// metadata: superblocks, and a bitmap of the regions that are being written. LVM takes both from one run.

// Regions. The bitmap has at most 2^21 bits (dm-raid), so a volume's region size bounds how far it can ever grow.
// LVM begins with 2 MiB and doubles it with the volume; here it is doubled with the group, and so far that a volume
// can grow with the group to sixteen times its present size.
const (
	minRegion    = 2 * MiB
	regionBits   = 21
	regionGrowth = 4 // bits
)

// regionSize is the region size for a new volume of so many extents: never more than the volume itself, which neither
// LVM nor the kernel take, and never less than a stripe.
func regionSize(g Group, class Class, extents Extents) Bytes {
	var whole Extents
	for _, pv := range g.PVs {
		whole += pv.Extents
	}
	region := minRegion
	for region < g.bytes(whole)>>(regionBits-regionGrowth) {
		region *= 2
	}
	for region > g.bytes(extents) {
		region /= 2
	}
	return max(region, class.StripeSize)
}

// raidMetadata is how many extents of a leg LVM sets aside for the metadata of a leg with so many extents of data:
// 8 KiB of superblocks and one bit a region, in sectors (lvm2, lib/metadata/raid_manip.c, "rmeta extents").
func raidMetadata(g Group, legExtents Extents, region Bytes) Extents {
	regions := g.bytes(legExtents) / region
	bytes := 8*KiB + (regions+7)/8
	bytes = (bytes + sectorSize - 1) / sectorSize * sectorSize
	return Extents((bytes + g.ExtentSize - 1) / g.ExtentSize)
}

// legExtents is what one leg of a volume takes of a disk.
func legExtents(g Group, class Class, extents Extents) Extents {
	n := extents / class.row()
	if class.raid() {
		n += raidMetadata(g, n, regionSize(g, class, extents))
	}
	return n
}

// rowsIn is how many rows fit on legs of n extents each: legExtents the other way round.
func rowsIn(g Group, class Class, n Extents) Extents {
	rows := n
	for rows > 0 && legExtents(g, class, rows*class.row()) > n {
		rows-- // seldom more than once: the metadata takes few extents
	}
	return max(0, rows)
}
