package lvm

import "errors"

// capacity answers what a class can still get, by the arithmetic that plan uses: a volume of Largest will be accepted,
// one extent more will not. A class without a group on this node has none, which is not an error.
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
		if obstacle(s, g) != nil {
			continue
		}
		size := g.bytes(largest(g))
		c.Available += size
		c.Largest = max(c.Largest, size)
	}
	return c, nil
}

// largest counts the extents of the largest linear volume that the group can hold: all that are free, since a linear
// volume may lie on any number of runs.
func largest(g Group) Extents {
	var n Extents
	for _, h := range holes(g) {
		n += h.Count
	}
	return n
}

// bytes is what n extents of the group hold. It does not overflow for any n that the group's disks can have.
func (g Group) bytes(n Extents) Bytes { return Bytes(n) * g.ExtentSize }

// Room that is kept in a group's metadata area. A deletion needs to write too, and a full area can only be mended by
// hand, so creating stops early.
const (
	mdaReserve   = 16 * KiB
	mdaPerVolume = 3 * KiB // the text of one volume with the longest of tags
	mdaPerRun    = 160     // the text of one more segment
)

// mdaNeed bounds what the text of one more volume takes in the metadata area, whatever its name and size: so that
// capacity, which knows neither, answers the same as plan.
func mdaNeed(g Group) Bytes {
	return mdaPerVolume + mdaPerRun*Bytes(len(holes(g)))
}

// obstacle says why nothing can be made in a group whatever the size, and what to do about it; nil if nothing is in
// the way.
func obstacle(s State, g Group) error {
	namesakes := 0
	for _, other := range s.Groups {
		if other.Name == g.Name {
			namesakes++
		}
	}
	var missing []string
	for _, pv := range g.PVs {
		if pv.Missing {
			missing = append(missing, pv.UUID)
		}
	}
	switch {
	case namesakes > 1:
		return Errorf(KindNoRoom, "%d volume groups of this node are named %s: rename one (vgrename UUID NEWNAME; this one's UUID is %s)", namesakes, g.Name, g.UUID)
	case g.Problem != "":
		return Errorf(KindNoRoom, "volume group %s cannot be changed: %s", g.Name, g.Problem)
	case len(missing) > 0:
		return Errorf(KindNoRoom, "volume group %s cannot be changed while a disk is missing (physical volume %s): bring it back, or drop it with vgreduce --removemissing %s", g.Name, missing[0], g.Name)
	case groupNameTooLong(g.Name):
		return Errorf(KindNoRoom, "the name of volume group %s is too long: with a volume's name it would pass the %d bytes that device-mapper allows; at most %d (hyphens count twice)", g.Name, dmNameMax, groupNameMaxDM)
	case g.MDAFree < mdaNeed(g)+mdaReserve:
		return Errorf(KindNoRoom, "the metadata area of volume group %s is nearly full (%s of %s free): remove volumes, or add a disk with a larger one (pvcreate --metadatasize)", g.Name, g.MDAFree, g.MDASize)
	}
	return nil
}
