package lvm

import (
	"context"
	"errors"
)

// CreateSnapshot takes a snapshot of a ready thin volume, or finds the one that an equal request took. At most three LVM
// processes; the origin is never left suspended. KindInvalid: the volume is not thin; KindExists: the name is taken by a
// snapshot of another volume; KindNotFound, KindNotOurs: the volume; KindNoRoom: the pool; KindBusy: ask again, or
// somebody froze the file system.
func (h *Host) CreateSnapshot(ctx context.Context, spec SnapshotSpec) (Snapshot, error) {
	return Snapshot{}, Errorf(KindInternal, "%w", errors.ErrUnsupported)
}

// DeleteSnapshot removes a snapshot. Volumes made from it stay. One that a readable group lacks is gone: nil.
// KindNotOurs: its group is not on this node, or it is somebody else's.
func (h *Host) DeleteSnapshot(ctx context.Context, id ID) error {
	return Errorf(KindInternal, "%w", errors.ErrUnsupported)
}

// LookupSnapshot finds a ready snapshot. KindNotFound, KindNotOurs: as Lookup.
func (h *Host) LookupSnapshot(ctx context.Context, id ID) (Snapshot, error) {
	return Snapshot{}, Errorf(KindInternal, "%w", errors.ErrUnsupported)
}

// ListSnapshots lists the ready snapshots of this cluster, ordered by ID.
func (h *Host) ListSnapshots(ctx context.Context) ([]Snapshot, error) {
	return nil, Errorf(KindInternal, "%w", errors.ErrUnsupported)
}
