package host

import (
	"context"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
)

// deleting is a Delete request, as flights compare it.
type deleting struct{ id lvm.ID }

// Delete deletes a volume for its user. One that is to be wiped takes one LVM process before Delete returns, and at most
// two in the background, where its extents return to the group once they are zeroed; any other is removed at once, by
// one process. A volume that a readable group lacks is deleted: nil. KindNotLocal: its group is not on this node; KindNotManaged: it is
// somebody else's; KindInUse: it is open, or others are built on it; nothing was changed then.
func (h *Host) Delete(ctx context.Context, id lvm.ID) error {
	_, err := do(ctx, &h.operations, id.LV, deleting{id}, func(ctx context.Context) (struct{}, error) {
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
		// It never held anybody's data, or is not to be wiped: there is nothing to be done between marking and removing.
		// lvremove that is cut off leaves it as it was, or gone: a thin volume's blocks go after its name.
		return h.remove(ctx, s, v.ID, v.UUID, h.onDisk(v).State)
	}
	v, err = h.changeState(ctx, s, h.onDisk(v), lvm.StateDeleting)
	if err != nil {
		return err
	}
	h.wipe(v)
	return nil
}

// isWiped tells whether the volume is zeroed before its extents return to the group. A thin one is not: writing zeroes
// would allocate its blocks, and the pool zeroes each block before it shows it.
func isWiped(v lvm.Volume) bool {
	return v.Class.Wipe != lvm.WipeNone && v.Class.Layout != lvm.LayoutThin
}

// unused refuses a volume that is needed, before anything is changed: lvchange can fail and yet commit a tag, and
// lvremove takes the snapshots of an origin along without a word. done says what the volume cannot be.
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
