package lvm

import (
	"cmp"
	"fmt"
)

// What the disks of a group allow: whether LVM may be started, may commit, and whether what was read is all there is.

// answering refuses a group with a disk that does not answer: LVM would hang on it, and the group's lock with LVM.
func answering(g Group) error {
	for _, pv := range g.PVs {
		if pv.Silent {
			return Errorf(KindBusy, "nothing is changed in volume group %s while its disk %s does not answer: look at the kernel's log", g.Name, pv.Device)
		}
	}
	return nil
}

// undisturbed refuses every commit while a disk is away: it may be there again in a moment, but LVM's next commit notes
// it as missing, and only an admin can take that back. One that is noted already loses nothing by another commit.
func undisturbed(g Group) error {
	for _, pv := range g.PVs {
		if pv.away() {
			return Errorf(KindBusy, "nothing is changed in volume group %s until its disk is back or given up: %s", g.Name, pv.missingSentence(g.Name))
		}
	}
	return distinct(g)
}

// away tells whether the disk is missing, and no commit has noted that. (One that is there again, and missing all the same, is noted.)
func (pv PV) away() bool { return pv.Missing && !pv.Noted && pv.Back == "" }

// distinct refuses a group with a disk that has a copy: which of the two holds the volumes as they are now cannot be told, and
// LVM would take either. What is active already stays on the disk that it was activated on.
func distinct(g Group) error {
	for _, pv := range g.PVs {
		if len(pv.Copies) > 0 {
			return Errorf(KindBusy, "in volume group %s nothing is changed, wiped or activated: %s", g.Name, duplicateSentence(pv.UUID, pv.Copies...))
		}
	}
	return nil
}

// unproven says why the group may hold more than was read of it; "" if what is not there is not there. LVM writes each commit to
// all disks with a metadata area, and says in it which ones were away: those cannot know more. Which disks have an area is
// not written in the group, so that any other disk that was not read may have the newer metadata; of two copies of a
// disk, either may be the older.
func (g Group) unproven() string {
	for _, pv := range g.PVs {
		switch {
		case len(pv.Copies) > 0:
			return duplicateSentence(pv.UUID, pv.Copies...)
		case pv.Silent:
			return silentSentence(pv.Device)
		case pv.Unread:
			return "the metadata on its disk " + cmp.Or(pv.Device, pv.Back) + " cannot be read"
		case pv.away():
			return pv.missingSentence(g.Name)
		}
	}
	return ""
}

// absent is the error for what a group lacks: KindNotFound, or KindBusy where that is not proved.
func (g Group) absent(format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	if why := g.unproven(); why != "" {
		return Errorf(KindBusy, "%s as far as its disks can be read, which proves nothing: ask again; %s", what, why)
	}
	return Errorf(KindNotFound, "%s", what)
}
