package controller

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
)

// csi-snapshotter lets a VolumeSnapshotContent be deleted, and its snapshot stay, after most errors of CreateSnapshot: it takes
// them to say that nothing was taken (isCSIFinalError in its pkg/sidecar-controller). So a snapshot that its caller may not know
// of is looked for before such an error, as a volume is (outcome.go).

// unlessTaken is what CreateSnapshot answers where it was about to fail with err: err itself, or, if there may be a snapshot of
// that name, an error that does not let the caller forget it.
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

// keptSnapshot says why there may be a snapshot of the name; nil: there is none.
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
