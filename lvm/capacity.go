package lvm

import (
	"cmp"
	"errors"
	"slices"
)

// capacity answers what a class can still get, by the arithmetic that plan uses: a volume of Largest will be accepted,
// one row of extents more will not. A class without a group on this node has none, which is not an error.
func capacity(s State, class Class) (Capacity, error) {
	class, err := checkClass(class)
	if err != nil {
		return Capacity{}, err
	}
	groups, err := groupsOf(s, class)
	if errors.Is(err, errNoGroup) {
		return Capacity{}, nil
	}
	if err != nil {
		return Capacity{}, err
	}
	var c Capacity
	for _, g := range groups {
		if obstacle(s, g, class) != nil {
			continue
		}
		c.Available += g.bytes(available(g, class))
		c.Largest = max(c.Largest, g.bytes(largest(g, class)))
	}
	return c, nil
}

// largest counts the extents of the largest volume of the class that can be made in the group.
func largest(g Group, class Class) Extents {
	switch legs := class.legs(); {
	case class.Layout == LayoutThin:
		return promisable(g, class)
	case legs == 0:
		return g.free()
	default:
		return min(maxExtents/class.row(), rowsIn(g, class, legRun(g, legs))) * class.row()
	}
}

// legRun is the longest run that can be had on each of so many disks at once.
func legRun(g Group, legs int) Extents {
	var runs []Extents
	for _, pv := range g.PVs {
		runs = append(runs, pv.longest())
	}
	if len(runs) < legs {
		return 0
	}
	slices.SortFunc(runs, func(a, b Extents) int { return cmp.Compare(b, a) })
	return runs[legs-1]
}

// available counts the extents that volumes of the class can have together, at best.
func available(g Group, class Class) Extents {
	legs := class.legs()
	if class.Layout == LayoutThin || legs == 0 {
		return largest(g, class)
	}
	return rowsIn(g, class, legRows(g, legs)) * class.row()
}

// legRows is how many rows of one extent on each of so many disks there are in the group: the most k for which the
// disks' free extents, counting at most k of each, are k rows. (A volume of k needs them in one run each; many small
// ones do not.)
func legRows(g Group, legs int) Extents {
	var rooms []Extents
	for _, pv := range g.PVs {
		rooms = append(rooms, pv.free())
	}
	enough := func(k Extents) bool {
		var n Extents
		for _, room := range rooms {
			n += min(k, room)
		}
		return n >= k*Extents(legs)
	}
	low, high := Extents(0), g.free()/Extents(legs)+1 // enough(low), not enough(high)
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
const maxExtents = Extents(1<<32 - 1)

// Room that is kept in a group's metadata area. A deletion needs to write too, and a full area can only be mended by
// hand, so creating stops early.
const (
	mdaReserve   = 16 * KiB
	mdaPerVolume = 3 * KiB // the text of one volume with the longest of tags
	mdaPerLeg    = 3 * KiB // RAID: the text of a leg's two LVs, 1.1 KiB; LVM's first commit repeats the tags on one of them
	mdaPerRun    = 160     // the text of one more segment
	mdaPerPool   = 4 * KiB // the text of a thin pool, of its two LVs, and of the spare
)

// mdaNeed bounds what the text of one more volume takes in the metadata area, whatever its name and size: so that
// capacity, which knows neither, answers the same as plan.
func mdaNeed(g Group, class Class) Bytes {
	need := mdaPerVolume
	switch legs := class.legs(); {
	case class.Layout == LayoutThin:
		need += mdaPerPool + mdaPerRun*g.runs()
	case class.raid():
		need += mdaPerLeg * Bytes(legs)
	case legs > 0:
		need += mdaPerRun * Bytes(legs)
	default:
		need += mdaPerRun * Bytes(len(holes(g)))
	}
	return need
}

// obstacle says why nothing of the class can be made in a group whatever the size, and what to do about it; nil if
// nothing is in the way.
func obstacle(s State, g Group, class Class) error {
	if err := unchangeable(s, g); err != nil {
		return err
	}
	switch {
	case groupNameTooLong(g.Name):
		return Errorf(KindInsufficientCapacity, "the name of volume group %s is too long: with a volume's name it would pass the %d bytes that device-mapper allows; at most %d (hyphens count twice)", g.Name, dmNameMax, groupNameMaxDM)
	case g.MDAFree < mdaNeed(g, class)+mdaReserve:
		return areaFull(g)
	case class.StripeSize > 0 && g.ExtentSize%class.StripeSize != 0:
		return Errorf(KindInsufficientCapacity, "volume group %s has extents of %s, which cannot be cut into stripes of %s: ask for a smaller stripeSize", g.Name, g.ExtentSize, class.StripeSize)
	case class.legs() > len(g.PVs):
		return Errorf(KindInsufficientCapacity, "volume group %s has %d disks, and the layout needs %d", g.Name, len(g.PVs), class.legs())
	}
	return nil
}

// areaFull says what to do where LVM's text of a group has no room to grow. Each disk has all of it, so the smallest area counts,
// and a disk that is only added does not help.
func areaFull(g Group) error {
	return Errorf(KindInsufficientCapacity, "the metadata area of volume group %s is nearly full (%s of %s free): remove volumes or snapshots; no area ever grows, and the smallest of all disks counts, so else add disks with a larger one (pvcreate --metadatasize 64m) and move everything to them (pvmove, vgreduce)",
		g.Name, g.MDAFree, g.MDASize)
}
