package lvm

import (
	"context"
	"errors"
)

// Trouble is one kind of thing that can be wrong with a volume or a group. The text form is for metrics.
type Trouble string

const (
	TroubleDegraded   Trouble = "degraded"    // RAID: a leg is missing or failed; the data is there
	TroubleRebuilding Trouble = "rebuilding"  // RAID: a leg is being filled
	TroubleMissing    Trouble = "missing"     // a physical volume of it is not there, and so is a part of the data
	TroublePoolNear   Trouble = "pool-near"   // its thin pool is nearly full, data or metadata
	TroublePoolFull   Trouble = "pool-full"   // its thin pool is full: writes fail
	TroublePoolFailed Trouble = "pool-failed" // its thin pool is read-only or needs a check
	TroubleSuspended  Trouble = "suspended"   // whoever touches it hangs
	TroubleSilent     Trouble = "silent"      // the group's disks do not answer
	TroubleUnusable   Trouble = "unusable"    // Group.Problem
)

// Finding is one trouble, told to the people who can mend it.
type Finding struct {
	Trouble Trouble
	Group   string // the volume group's name
	Volume  Volume // the volume; zero where the whole group is concerned
	Text    string // a sentence: what is wrong, with names and numbers, and what to do
}

// Health looks for trouble with the volumes of this cluster and their groups, through the kernel alone: no process.
func (h *Host) Health(ctx context.Context) ([]Finding, error) {
	return nil, Errorf(KindInternal, "%w", errors.ErrUnsupported)
}
