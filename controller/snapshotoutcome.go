package controller

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
)

// After most errors of CreateSnapshot, csi-snapshotter allows the deletion of a VolumeSnapshotContent without its snapshot: it
// concludes that the driver created nothing (isCSIFinalError in its pkg/sidecar-controller). So before such an error the driver
// searches for a snapshot that its caller may not know of, as it does for volumes (outcome.go).

// unlessTaken returns the error of a CreateSnapshot call that failed with err: err itself, or, if a snapshot of that name may
// exist, an error after which the caller does not forget it.
func (s *Server) unlessTaken(ctx context.Context, name string, err error) error {
	return s.snapshotOutcomes.errorFor(name, err, func() found {
		p, unread := s.snapshots.SnapshotPresence(context.WithoutCancel(ctx), name)
		f := found{kept: s.keptSnapshot(name, p, unread), answered: err}
		if p.Snapshot != nil {
			f.uuid = p.Snapshot.UUID
		}
		return f
	})
}

// keptSnapshot explains why a snapshot of the name may exist; nil: none does.
func (s *Server) keptSnapshot(name string, p lvm.SnapshotPresence, unread error) error {
	switch {
	case unread != nil:
		return unread
	case p.UnderWay:
		return lvm.Errorf(lvm.KindBusy, "an earlier request for snapshot %q is still in flight: retry when it has ended", name)
	case p.Snapshot != nil:
		return lvm.Errorf(lvm.KindBusy, "an earlier request created snapshot %s/%s on this node, and its caller may not know: restore the VolumeSnapshotClass of that request, or delete the VolumeSnapshot and then that snapshot (kubectl nodelvm orphans)", p.Snapshot.Group, p.Snapshot.ID.LV)
	case p.Unsure != nil && s.snapshotOutcomes.isUnknown(name):
		return lvm.Errorf(lvm.KindBusy, "an earlier request for snapshot %q may have created it, and not every disk can be read: %w", name, p.Unsure)
	}
	return nil
}
