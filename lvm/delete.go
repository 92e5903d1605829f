package lvm

import (
	"context"
	"strings"
)

// deleting is a Delete request, as flights compare it.
type deleting struct{ id ID }

// Delete deletes a volume for its user; its extents return to the group once they are wiped, in the background. At most
// three LVM processes, one of them before Delete returns. A volume that a readable group lacks is deleted: nil.
// KindNotOurs: its group is not on this node, or it is somebody else's; KindInUse: it is open, or others are built on
// it; nothing was changed then.
func (h *Host) Delete(ctx context.Context, id ID) error {
	_, err := fly(ctx, &h.flights, id.LV, deleting{id}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, h.delete(ctx, id)
	})
	return err
}

func (h *Host) delete(ctx context.Context, id ID) error {
	unlock, err := h.writers.lock(ctx, id.VG)
	if err != nil {
		return Errorf(KindBusy, "volume %s: waiting for its volume group: %w", id, err)
	}
	defer unlock()
	s, err := h.read(ctx)
	if err != nil {
		return err
	}
	g, lv, v, err := s.find(id)
	switch {
	case KindOf(err) == KindNotFound:
		return nil
	case err != nil:
		return err
	case v.Cluster != h.cfg.Cluster:
		return Errorf(KindNotOurs, "volume %s/%s was made by the cluster %q, and only that one deletes it (this one is %q)", g.Name, lv.Name, v.Cluster, h.cfg.Cluster)
	case v.State == StateDeleting:
		h.wipe(v)
		return nil
	}
	if err := h.unused(ctx, lv, v); err != nil {
		return err
	}
	if v.State == StateCreating { // it never held anybody's data
		return h.remove(ctx, s, v)
	}
	v, err = h.changeState(ctx, s, v, StateDeleting)
	if err != nil {
		return err
	}
	h.wipe(v)
	return nil
}

// unused refuses a volume that is needed, before anything is changed: lvchange can fail and yet commit a tag, and
// lvremove takes the snapshots of an origin along without a word.
func (h *Host) unused(ctx context.Context, lv LV, v Volume) error {
	if len(lv.UsedBy) > 0 {
		return Errorf(KindInUse, "volume %s/%s cannot be deleted: %s built on it would go with it; remove that first", v.Group, lv.Name, strings.Join(lv.UsedBy, ", "))
	}
	path, active, err := h.Device(v.ID, v.UUID)
	if err != nil || !active {
		return err
	}
	if err := h.machine.Kernel.Unused(ctx, path); err != nil {
		return Errorf(KindOf(err), "volume %s/%s cannot be deleted: %w", v.Group, lv.Name, err)
	}
	return nil
}

// remove removes the volume from its group, if it still is the one that was looked at; LVM deactivates it, and refuses
// while its device is open. The group's lock must be held.
func (h *Host) remove(ctx context.Context, s State, v Volume) error {
	g, _, _, err := s.find(v.ID)
	if err != nil {
		return err
	}
	t, err := targetOf(g.Name, v.ID.LV)
	if err != nil {
		return err
	}
	_, failure := h.machine.Runner.Run(ctx, removeArgs(t, g, v.UUID, v.State))
	s, err = h.read(ctx)
	if err != nil {
		return err
	}
	_, _, now, err := s.find(v.ID)
	switch {
	case err == nil && now.UUID == v.UUID && failure != nil:
		return Errorf(KindInternal, "volume %s could not be removed: %w", t, failure)
	case err == nil && now.UUID == v.UUID:
		return Errorf(KindInternal, "volume %s was not removed: it is %s now, not %s", t, now.State, v.State)
	case err != nil && KindOf(err) != KindNotFound:
		return err // whether it is gone cannot be told
	}
	return h.flush(g)
}
