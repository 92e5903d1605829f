package lvm

import "errors"

// snapshotPlacement is what is to be done for one SnapshotSpec: one of ready, leftover and steps is set.
type snapshotPlacement struct {
	ready    *Snapshot // it is there: nothing is to be done
	leftover *Snapshot // an earlier attempt that never became ready: to be removed, then planned anew
	steps    []step
	snapshot Snapshot // what the steps make: creating, without UUID and Created, which LVM gives
}

// planSnapshot decides what is to be done for a snapshot. KindInvalid: the volume is not thin; KindExists: the name is
// taken by a snapshot of another volume; KindNotFound, KindNotOurs: the volume is not there, or not ours; KindBusy: it
// is being made or deleted; KindNoRoom: its pool may promise no more.
func planSnapshot(s State, cluster string, spec SnapshotSpec) (snapshotPlacement, error) {
	return snapshotPlacement{}, Errorf(KindInternal, "%w", errors.ErrUnsupported)
}
