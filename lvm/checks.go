package lvm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// What the disks of a volume group permit: to start LVM, to commit, and to rely on the reading as complete.

// CheckResponsive refuses a volume group with an unresponsive disk: LVM would wait for the disk, and hold the group's lock.
func CheckResponsive(g Group) error {
	for _, pv := range g.PVs {
		if pv.Unresponsive {
			return Errorf(KindBusy, "volume group %s is blocked because its disk %s is unresponsive: see the kernel's log", g.Name, pv.Device)
		}
	}
	return nil
}

// CheckNoNewMissingPV refuses every commit while a disk without the MISSING flag is missing. The disk may return in a moment,
// but LVM's next commit sets the flag, and only an admin can clear it. A disk that has the flag loses nothing by another
// commit.
func CheckNoNewMissingPV(g Group) error {
	for _, pv := range g.PVs {
		if pv.isNewlyMissing() {
			return Errorf(KindBusy, "volume group %s is blocked until its disk is back or removed from the group: %s", g.Name, pv.DescribeMissing(g.Name))
		}
	}
	return CheckNoDuplicatePV(g)
}

// isNewlyMissing reports whether the disk is missing without the MISSING flag. (A ReappearedDevice has the flag.)
func (pv PV) isNewlyMissing() bool { return pv.Missing && !pv.MissingFlag && pv.ReappearedDevice == "" }

// CheckNoDuplicatePV refuses a volume group with a copied disk, or with two disks whose metadata differs at one seqno: nothing proves
// which is current, and LVM may use either. Active volumes stay on the disk that they were activated on.
func CheckNoDuplicatePV(g Group) error {
	for _, pv := range g.PVs {
		if len(pv.DuplicateDevices) > 0 {
			return Errorf(KindBusy, "the driver changes, wipes and activates nothing in volume group %s: %s", g.Name, DescribeDuplicatePV(pv.UUID, pv.DuplicateDevices...))
		}
	}
	if g.Tie != "" {
		return Errorf(KindBusy, "the driver changes, wipes and activates nothing in volume group %s: %s", g.Name, g.Tie)
	}
	return nil
}

// IncompleteReason returns why the volume group may have more than the reading shows, or "" if the reading is complete. LVM writes
// each commit to all disks with a metadata area, and names the missing ones in it: those cannot have newer metadata. The
// metadata does not name the disks that have an area, so any other disk that was not read may have newer metadata. Of two
// copies of a disk, either may be the older.
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
	return cmp.Or(g.Tie, g.Unreadable)
}

// AbsentError returns the error for something that the volume group lacks: KindNotFound, or KindBusy if the reading is incomplete.
func (g Group) AbsentError(format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	if why := g.IncompleteReason(); why != "" {
		return Errorf(KindBusy, "the driver cannot confirm that %s, because volume group %s may have newer metadata than the driver reads: %s. The caller retries", what, g.Name, why)
	}
	return Errorf(KindNotFound, "%s", what)
}

// CheckWritable returns an error that says why the driver cannot change a volume group now, or nil if it can.
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

// DescribeDuplicatePV says that several devices carry a physical volume. A path to a disk does so, too, from its return until multipathd uses it.
func DescribeDuplicatePV(uuid string, devices ...string) string {
	slices.Sort(devices)
	return fmt.Sprintf("its physical volume %s is on several devices (%s); if they are paths to one disk, let multipathd use them; remove a copy, or give it new UUIDs with vgimportclone",
		uuid, strings.Join(devices, ", "))
}

func DescribeUnresponsive(device string) string {
	return fmt.Sprintf("its disk %s is unresponsive: these are the figures of the last read", device)
}

// DescribeMissing returns a sentence that says that a disk is missing, and what to do. A disk that missed a commit and is back
// keeps the MISSING flag until an admin clears it: its data may be old.
func (pv PV) DescribeMissing(group VGName) string {
	if pv.ReappearedDevice != "" {
		return fmt.Sprintf("physical volume %s has LVM's MISSING flag, but is back as %s: clear the flag with vgextend --restoremissing %s %s", pv.UUID, pv.ReappearedDevice, group, pv.ReappearedDevice)
	}
	return fmt.Sprintf("physical volume %s is missing: reconnect its disk, or remove it from the group with vgreduce --removemissing %s", pv.UUID, group)
}

// CheckComplete returns an error that says why the node may have more than the state shows, or nil if the state is complete.
func (s State) CheckComplete() error {
	for _, g := range s.Groups {
		if why := g.IncompleteReason(); why != "" {
			return Errorf(KindBusy, "volume group %s may have newer metadata than the driver reads: %s", g.Name, why)
		}
	}
	if len(s.UnreadDevices) > 0 {
		return Errorf(KindBusy, "%s", s.UnreadDevices[0])
	}
	return nil
}

// Targets of device-mapper that a part of the classes needs. The kernel's module of a target is "dm-" and its name.
const (
	TargetThinPool = "thin-pool"
	TargetRAID     = "raid"
	TargetCrypt    = "crypt"
)

// Targets lists the targets that not every kernel has.
var Targets = []string{TargetThinPool, TargetRAID, TargetCrypt}

// TargetState says whether volumes can use a device-mapper target.
type TargetState int

const (
	TargetPresent  TargetState = iota // the kernel has it
	TargetLoadable                    // the kernel lacks it, and the module's file is there: LVM loads it
	TargetMissing                     // the kernel lacks it, and no file of its module is there
)

// Targets returns the targets that volumes of the class need.
func (class Class) Targets() (needed []string) {
	switch {
	case class.Layout == LayoutThin:
		needed = append(needed, TargetThinPool)
	case class.IsRAID():
		needed = append(needed, TargetRAID)
	}
	if class.Encryption == EncryptionLUKS2 {
		needed = append(needed, TargetCrypt)
	}
	return needed
}

// CheckTargets refuses a class whose volumes this node's kernel cannot map.
func CheckTargets(s State, class Class) error {
	for _, target := range class.Targets() {
		if slices.Contains(s.MissingTargets, target) {
			return Errorf(KindInsufficientCapacity, "the kernel of this node has no module dm-%s, or cannot load it: install the package with the kernel's extra modules (linux-modules-extra, kernel-modules), load the module when the node boots, or boot the kernel that /lib/modules belongs to", target)
		}
	}
	return nil
}
