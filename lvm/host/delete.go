package host

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
	"github.com/nodelvm/nodelvm/lvm/internal/wipe"
)

// deleting identifies a Delete request among the operations in flight.
type deleting struct{ id lvm.ID }

// Delete deletes a volume. One that must be wiped takes one LVM process before Delete returns, and at most two in the
// background, which return its extents to the group once they are zero. Any other takes one process and is removed at once. A
// volume that its readable group lacks is deleted: nil. On an error the driver has changed nothing. KindNotLocal: the volume's
// group is not on this node; KindNotManaged: the volume belongs to another cluster; KindInUse: it is open, or
// bound at a pod's path, or other volumes depend on it.
func (h *Host) Delete(ctx context.Context, id lvm.ID) error {
	_, err := oplock.Do(ctx, &h.operations, id.LV, deleting{id}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, h.delete(ctx, id)
	})
	return err
}

func (h *Host) delete(ctx context.Context, id lvm.ID) error {
	s, unlock, err := h.engine.Locked(ctx, id.VG, "deleting volume "+id.LV, h.engine.ReadState)
	if err != nil {
		return err
	}
	defer unlock()
	g, lv, v, err := s.FindVolume(id)
	switch {
	case lvm.KindOf(err) == lvm.KindNotFound:
		return nil
	case err != nil:
		return err
	case v.Cluster != h.engine.Config.Cluster:
		return lvm.Errorf(lvm.KindNotManaged, "volume %s/%s belongs to the cluster %q, and only that cluster deletes it (this one is %q)", g.Name, lv.Name, v.Cluster, h.engine.Config.Cluster)
	case v.State == lvm.StateDeleting:
		h.wiper.Wipe(v)
		return nil
	case v.State.IsMove():
		return v.CheckNoMove("deleted")
	}
	return h.deleteLocked(ctx, s, g, lv, v)
}

// deleteLocked deletes a volume of this cluster. The caller holds the group's lock.
func (h *Host) deleteLocked(ctx context.Context, s lvm.State, g lvm.Group, lv lvm.LV, v lvm.Volume) error {
	if err := h.engine.CloseUnused(ctx, v, "deleted"); err != nil {
		return err
	}
	if err := h.engine.CheckUnused(ctx, g, lv, v, "deleted"); err != nil {
		return err
	}
	h.replays.Delete(v.UUID)
	if v.State == lvm.StateCreating || v.State == lvm.StateZeroing || !wipe.IsWiped(v) && !h.wiper.IsErased(g, lv, v) {
		// The volume never held data, or its class does not wipe, so it needs no tag before its removal. An interrupted
		// lvremove leaves it as it was, or removed: a thin volume's blocks follow its name.
		return h.engine.Remove(ctx, s, v.ID, v.UUID, h.engine.OnDisk(v).State)
	}
	v, err := h.engine.ChangeState(ctx, s, h.engine.OnDisk(v), lvm.StateDeleting)
	if err != nil {
		return err
	}
	h.wiper.Wipe(v)
	return nil
}
