package lvm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// What the disks of a group allow: whether LVM may be started, may commit, and whether what was read is all there is.

// CheckResponsive refuses a group with a disk that does not answer: LVM would hang on it, and the group's lock with LVM.
func CheckResponsive(g Group) error {
	for _, pv := range g.PVs {
		if pv.Unresponsive {
			return Errorf(KindBusy, "volume group %s is blocked because its disk %s is unresponsive: see the kernel's log", g.Name, pv.Device)
		}
	}
	return nil
}

// CheckNoNewMissingPV refuses every commit while a disk is away: it may be there again in a moment, but LVM's next commit notes
// it as missing, and only an admin can take that back. One that is noted already loses nothing by another commit.
func CheckNoNewMissingPV(g Group) error {
	for _, pv := range g.PVs {
		if pv.isNewlyMissing() {
			return Errorf(KindBusy, "volume group %s is blocked until its disk is back or removed from the group: %s", g.Name, pv.DescribeMissing(g.Name))
		}
	}
	return CheckNoDuplicatePV(g)
}

// isNewlyMissing tells whether the disk is missing, and no commit has noted that. (One that is there again, and missing all the same, is noted.)
func (pv PV) isNewlyMissing() bool { return pv.Missing && !pv.MissingFlag && pv.ReappearedDevice == "" }

// CheckNoDuplicatePV refuses a group with a disk that has a copy: which of the two holds the volumes as they are now cannot be told, and
// LVM would take either. What is active already stays on the disk that it was activated on.
func CheckNoDuplicatePV(g Group) error {
	for _, pv := range g.PVs {
		if len(pv.DuplicateDevices) > 0 {
			return Errorf(KindBusy, "the driver changes, wipes and activates nothing in volume group %s: %s", g.Name, DescribeDuplicatePV(pv.UUID, pv.DuplicateDevices...))
		}
	}
	return nil
}

// IncompleteReason says why the group may hold more than was read of it; "" if what is not there is not there. LVM writes each commit to
// all disks with a metadata area, and says in it which ones were away: those cannot know more. Which disks have an area is
// not written in the group, so that any other disk that was not read may have the newer metadata; of two copies of a
// disk, either may be the older.
func (g Group) IncompleteReason() string {
	for _, pv := range g.PVs {
		switch {
		case len(pv.DuplicateDevices) > 0:
			return DescribeDuplicatePV(pv.UUID, pv.DuplicateDevices...)
		case pv.Unresponsive:
			return DescribeUnresponsive(pv.Device)
		case pv.MetadataUnreadable:
			return "the metadata on its disk " + cmp.Or(pv.Device, pv.ReappearedDevice) + " cannot be read"
		case pv.isNewlyMissing():
			return pv.DescribeMissing(g.Name)
		}
	}
	return ""
}

// AbsentError is the error for what a group lacks: KindNotFound, or KindBusy where that is not proved.
func (g Group) AbsentError(format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	if why := g.IncompleteReason(); why != "" {
		return Errorf(KindBusy, "%s according to the disks that can be read, which is no proof; retry: %s", what, why)
	}
	return Errorf(KindNotFound, "%s", what)
}

// doubled is in the sentence of a PV that stands on several devices.
const DuplicatePhrase = "stands on several devices"

// CheckWritable says why nothing at all can be changed in a group now; nil if nothing is in the way.
func CheckWritable(s State, g Group) error {
	namesakes := 0
	for _, other := range s.Groups {
		if other.Name == g.Name {
			namesakes++
		}
	}
	switch {
	case namesakes > 1:
		return Errorf(KindInsufficientCapacity, "%d volume groups on this node have the name %s: rename one (vgrename UUID NEWNAME; the UUID of this one is %s)", namesakes, g.Name, g.UUID)
	case g.Problem != "":
		return Errorf(KindInsufficientCapacity, "volume group %s cannot be changed: %s", g.Name, g.Problem)
	}
	if i := slices.IndexFunc(g.PVs, func(pv PV) bool { return pv.Missing }); i >= 0 {
		return Errorf(KindInsufficientCapacity, "volume group %s cannot be changed while %s%s", g.Name, g.PVs[i].DescribeMissing(g.Name), Parenthesized(s.UnreadDevices))
	}
	return nil
}

func DescribeDuplicatePV(uuid string, devices ...string) string {
	slices.Sort(devices)
	return fmt.Sprintf("its physical volume %s "+DuplicatePhrase+" (%s); remove the copy, or give it new UUIDs with vgimportclone",
		uuid, strings.Join(devices, ", "))
}

func DescribeUnresponsive(device string) string {
	return fmt.Sprintf("its disk %s is unresponsive: these are the figures of the last read", device)
}

// DescribeMissing says that a disk is missing, and what to do. One that is there again, but was away while the group was
// changed, stays marked until an admin takes it in: what is on it may be old.
func (pv PV) DescribeMissing(group string) string {
	if pv.ReappearedDevice != "" {
		return fmt.Sprintf("physical volume %s has LVM's MISSING flag, but is back as %s: clear the flag with vgextend --restoremissing %s %s", pv.UUID, pv.ReappearedDevice, group, pv.ReappearedDevice)
	}
	return fmt.Sprintf("physical volume %s is missing: reconnect its disk, or remove it from the group with vgreduce --removemissing %s", pv.UUID, group)
}

// CheckComplete says why there may be more than the state shows; nil: it shows all.
func (s State) CheckComplete() error {
	for _, g := range s.Groups {
		if why := g.IncompleteReason(); why != "" {
			return Errorf(KindBusy, "volume group %s may hold more than can be read: %s", g.Name, why)
		}
	}
	if len(s.UnreadDevices) > 0 {
		return Errorf(KindBusy, "%s", s.UnreadDevices[0])
	}
	return nil
}
