package alloc

import (
	"cmp"
	"errors"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
)

// Capacity returns the capacity of a class, with the arithmetic of Plan: Plan accepts a volume of Largest, and refuses one that
// is a stripe larger. A class without a volume group on this node has no capacity; that is not an error.
func Capacity(s lvm.State, class lvm.Class) (lvm.Capacity, error) {
	class, err := lvm.CheckClass(class)
	if err != nil {
		return lvm.Capacity{}, err
	}
	groups, err := GroupsOf(s, class)
	if errors.Is(err, ErrNoGroup) {
		return lvm.Capacity{}, nil
	}
	if err != nil {
		return lvm.Capacity{}, err
	}
	var c lvm.Capacity
	for _, g := range groups {
		if CheckAllocatable(s, g, class) != nil {
			continue
		}
		c.Available += class.DataSize(g.Bytes(Available(g, class)))
		c.Largest = max(c.Largest, class.DataSize(g.Bytes(Largest(g, class))))
	}
	return c, nil
}

// Largest counts the extents of the largest volume of the class in the group.
func Largest(g lvm.Group, class lvm.Class) (most lvm.Extents) {
	if class.Layout == lvm.LayoutThin {
		return promisable(g, class)
	}
	for _, space := range spaces(g) {
		most = max(most, largestIn(space, class))
	}
	return most
}

// largestIn is Largest on disks with blocks of one size, for a class that is not thin.
func largestIn(g lvm.Group, class lvm.Class) lvm.Extents {
	switch legs := class.Legs(); {
	case legs == 0:
		return g.FreeExtents()
	default:
		return min(maxExtents/class.StripeExtents(), rowsIn(g, class, legRun(g, legs))) * class.StripeExtents()
	}
}

// legRun returns the longest contiguous range that is free on each of so many disks.
func legRun(g lvm.Group, legs int) lvm.Extents {
	var runs []lvm.Extents
	for _, pv := range g.PVs {
		runs = append(runs, pv.LongestRun())
	}
	if len(runs) < legs {
		return 0
	}
	slices.SortFunc(runs, func(a, b lvm.Extents) int { return cmp.Compare(b, a) })
	return runs[legs-1]
}

// Available counts the extents that all further volumes of the class together can have at most.
func Available(g lvm.Group, class lvm.Class) (all lvm.Extents) {
	legs := class.Legs()
	switch {
	case class.Layout == lvm.LayoutThin:
		return promisable(g, class)
	case legs == 0:
		return g.FreeExtents()
	}
	for _, space := range spaces(g) {
		all += rowsIn(g, class, legRows(space, legs)) * class.StripeExtents()
	}
	return all
}

// legRows counts the rows of one extent on each of so many disks: the largest k for which the disks' free extents, at most k of
// each, are k rows. (One volume of k rows needs contiguous ranges; many small ones do not.)
func legRows(g lvm.Group, legs int) lvm.Extents {
	var rooms []lvm.Extents
	for _, pv := range g.PVs {
		rooms = append(rooms, pv.AllocatableExtents())
	}
	enough := func(k lvm.Extents) bool {
		var n lvm.Extents
		for _, room := range rooms {
			n += min(k, room)
		}
		return n >= k*lvm.Extents(legs)
	}
	low, high := lvm.Extents(0), g.FreeExtents()/lvm.Extents(legs)+1 // enough(low), not enough(high)
	for high-low > 1 {
		if k := low + (high-low)/2; enough(k) {
			low = k
		} else {
			high = k
		}
	}
	return low
}

// maxExtents is LVM's limit for one volume.
const maxExtents = lvm.Extents(1<<32 - 1)

// Space that stays free in a volume group's metadata area. Plan refuses to create volumes early, because a deletion must write
// too, and only an admin can repair a full area.
const (
	MdaReserve   = 16 * lvm.KiB
	mdaPerVolume = 3 * lvm.KiB // a volume with the longest tags
	mdaPerLeg    = 3 * lvm.KiB // RAID: the text of a leg's two LVs; LVM's first commit repeats the tags on one
	mdaPerRun    = 160         // for one more segment
	mdaPerPool   = 4 * lvm.KiB // a thin pool, its two LVs, and the spare
)

// MetadataNeed returns an upper limit for the text of one more volume in the metadata area, whatever its name and size.
// Capacity knows neither, and must agree with Plan.
func MetadataNeed(g lvm.Group, class lvm.Class) lvm.Bytes {
	need := mdaPerVolume
	switch legs := class.Legs(); {
	case class.Layout == lvm.LayoutThin:
		need += mdaPerPool + mdaPerRun*g.FreeRunCount()
	case class.IsRAID():
		need += mdaPerLeg * lvm.Bytes(legs)
	case legs > 0:
		need += mdaPerRun * lvm.Bytes(legs)
	default:
		need += mdaPerRun * lvm.Bytes(len(FreeExtents(g)))
	}
	return need
}

// CheckAllocatable returns why the group can have no volume of the class, whatever its size, and what to do; nil if it can.
func CheckAllocatable(s lvm.State, g lvm.Group, class lvm.Class) error {
	if err := lvm.CheckWritable(s, g); err != nil {
		return err
	}
	if err := lvm.CheckTargets(s, class); err != nil {
		return err
	}
	switch {
	case lvm.GroupNameTooLong(g.Name):
		return lvm.Errorf(lvm.KindInsufficientCapacity, "the name of volume group %s is too long: with a volume's name it would exceed the %d bytes that device-mapper allows; at most %d (hyphens count twice)", g.Name, lvm.DmNameMax, lvm.GroupNameMaxDM)
	case g.MDAFree < MetadataNeed(g, class)+MdaReserve:
		return MetadataAreaFull(g)
	case class.StripeSize > 0 && g.ExtentSize%class.StripeSize != 0:
		return lvm.Errorf(lvm.KindInsufficientCapacity, "volume group %s has extents of %s, which stripes of %s do not divide: use a smaller stripeSize", g.Name, g.ExtentSize, class.StripeSize)
	case class.Legs() > len(g.PVs):
		return lvm.Errorf(lvm.KindInsufficientCapacity, "volume group %s has %d disks, but the layout needs %d", g.Name, len(g.PVs), class.Legs())
	}
	return nil
}

// CheckMetadata refuses (lvm.KindInsufficientCapacity) a commit that makes the group's text longer by so many bytes, if the deletion of volumes then
// had no space.
func CheckMetadata(g lvm.Group, more lvm.Bytes) error {
	if more > 0 && g.MDAFree < more+MdaReserve {
		return MetadataAreaFull(g)
	}
	return nil
}

// MetadataAreaFull returns what to do about a full metadata area. Each disk has all of the text, so the smallest area is the
// limit, and an additional disk does not help.
func MetadataAreaFull(g lvm.Group) error {
	return lvm.Errorf(lvm.KindInsufficientCapacity, "the metadata area of volume group %s is nearly full (%s of %s free): delete volumes or snapshots. A metadata area cannot grow, and the smallest one of all disks is the limit; otherwise add disks with larger ones (pvcreate --metadatasize 64m) and move all extents to them (pvmove, vgreduce)",
		g.Name, g.MDAFree, g.MDASize)
}
