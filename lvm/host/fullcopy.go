package host

import (
	"context"
	"errors"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// snapshotReading identifies the change of a snapshot's device among the operations in flight.
type snapshotReading struct {
	id     lvm.ID
	uuid   string
	active bool
}

// SnapshotDevice returns the device of a ready snapshot, and activates it if necessary: its content is copied to another node. KindNotFound,
// KindNotLocal, KindNotManaged: the snapshot.
func (h *Host) SnapshotDevice(ctx context.Context, id lvm.ID, uuid string) (string, error) {
	return oplock.Do(ctx, &h.operations, id.LV, snapshotReading{id, uuid, true}, func(ctx context.Context) (string, error) {
		return h.engine.ActivateSnapshot(ctx, id, uuid)
	})
}

// ReleaseSnapshot deactivates a snapshot that no copy reads any more. Nil if it is inactive, in use, or does not exist.
func (h *Host) ReleaseSnapshot(ctx context.Context, id lvm.ID, uuid string) error {
	_, err := oplock.Do(ctx, &h.operations, id.LV, snapshotReading{id, uuid, false}, func(ctx context.Context) (struct{}, error) {
		err := h.engine.DeactivateSnapshot(ctx, id, uuid)
		if kind := lvm.KindOf(err); err != nil && (kind == lvm.KindNotFound || kind == lvm.KindNotLocal) {
			err = nil
		}
		return struct{}{}, err
	})
	return err
}

// ReleaseSnapshots deactivates the snapshots that a killed driver left active.
func (h *Host) ReleaseSnapshots(ctx context.Context) error {
	all, err := h.ListSnapshots(ctx)
	for _, sn := range all {
		err = errors.Join(err, h.ReleaseSnapshot(ctx, sn.ID, sn.UUID))
	}
	return err
}

// CloneSnapshots lists this cluster's snapshots that were taken for clones on other nodes, also those that a failed command left unfinished. It starts no
// process.
func (h *Host) CloneSnapshots(ctx context.Context) (list []lvm.Snapshot, err error) {
	s, err := h.engine.ReadState(ctx)
	if err != nil {
		return nil, err
	}
	for _, g := range s.Groups {
		for _, sn := range g.Snapshots() {
			if sn.Cluster == h.engine.Config.Cluster && sn.Claim != "" {
				list = append(list, sn)
			}
		}
	}
	return list, nil
}

// FullCopies lists this cluster's volumes that receive a full copy of a source on another node. It starts no process.
func (h *Host) FullCopies(ctx context.Context) (list []lvm.Volume, err error) {
	s, err := h.engine.ReadState(ctx)
	if err != nil {
		return nil, err
	}
	for _, v := range h.volumes(s) {
		if v.IsFullCopy() {
			list = append(list, v)
		}
	}
	return list, nil
}
