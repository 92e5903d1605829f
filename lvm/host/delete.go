package host

import (
	"context"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// deleting identifies a Delete request among the operations in flight.
type deleting struct{ id lvm.ID }

// Delete deletes a volume. One that must be wiped takes one LVM process before Delete returns, and at most two in the
// background, which return its extents to the group once they are zero. Any other takes one process and is removed at once. A
// volume that its readable group lacks is deleted: nil. On an error the driver has changed nothing. KindNotLocal: the volume's
// group is not on this node; KindNotManaged: the volume belongs to another cluster; KindInUse: it is open, or other volumes
// depend on it.
func (h *Host) Delete(ctx context.Context, id lvm.ID) error {
	_, err := oplock.Do(ctx, &h.operations, id.LV, deleting{id}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, h.delete(ctx, id)
	})
	return err
}

func (h *Host) delete(ctx context.Context, id lvm.ID) error {
	s, unlock, err := h.locked(ctx, id.VG, "deleting volume "+id.LV, h.readState)
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
	case v.Cluster != h.cfg.Cluster:
		return lvm.Errorf(lvm.KindNotManaged, "volume %s/%s belongs to the cluster %q, and only that cluster deletes it (this one is %q)", g.Name, lv.Name, v.Cluster, h.cfg.Cluster)
	case v.State == lvm.StateDeleting:
		h.wipe(v)
		return nil
	}
	if err := h.unused(ctx, g, lv, v, "deleted"); err != nil {
		return err
	}
	if v.State == lvm.StateCreating || v.State == lvm.StateZeroing || !isWiped(v) {
		// The volume never held data, or its class does not wipe, so it needs no tag before its removal. An interrupted
		// lvremove leaves it as it was, or removed: a thin volume's blocks follow its name.
		return h.remove(ctx, s, v.ID, v.UUID, h.onDisk(v).State)
	}
	v, err = h.changeState(ctx, s, h.onDisk(v), lvm.StateDeleting)
	if err != nil {
		return err
	}
	h.wipe(v)
	return nil
}

// isWiped reports whether the driver zeroes the volume before its extents return to the group. Not a thin one: the zeroes would
// allocate its blocks, and the pool zeroes each block before it hands it out.
func isWiped(v lvm.Volume) bool {
	return v.Class.Wipe != lvm.WipeNone && v.Class.Layout != lvm.LayoutThin
}

// unused refuses a volume in use, before anything changes: lvchange can fail and yet commit a tag, and lvremove removes the
// snapshots of an origin without a warning. done completes the message "cannot be ...".
func (h *Host) unused(ctx context.Context, g lvm.Group, lv lvm.LV, v lvm.Volume, done string) error {
	switch {
	case len(lv.UsedBy) > 0:
		return lvm.Errorf(lvm.KindInUse, "volume %s/%s cannot be %s while %s depends on it: remove that first", v.Group, lv.Name, done, strings.Join(lv.UsedBy, ", "))
	case alloc.IsMoving(g, lv):
		return lvm.Errorf(lvm.KindBusy, "volume %s/%s cannot be %s: %w", v.Group, lv.Name, done, alloc.ErrMoving)
	}
	path, active, err := h.Device(v.ID, v.UUID)
	if err != nil || !active {
		return err
	}
	if err := h.machine.Kernel.CheckUnused(ctx, path); err != nil {
		return lvm.Errorf(lvm.KindOf(err), "volume %s/%s cannot be %s: %w", v.Group, lv.Name, done, err)
	}
	return nil
}
