package engine

import (
	"context"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

// ChangeState moves a volume to another state, flushes the commit, and returns the volume as the disks now describe it. v must
// have the state that is on the disks, and the caller holds the group's lock.
func (e *Engine) ChangeState(ctx context.Context, s lvm.State, v lvm.Volume, to lvm.VolumeState) (lvm.Volume, error) {
	g, err := s.FindGroup(v.ID.VG)
	if err != nil {
		return lvm.Volume{}, err
	}
	t, err := lvmcmd.TargetOf(g.Name, v.ID.LV)
	if err != nil {
		return lvm.Volume{}, err
	}
	if to == lvm.StateReady && (v.State == lvm.StateCreating || v.State == lvm.StateZeroing) { // never on a volume that pods used
		if err := e.writeFormatMark(ctx, g, v); err != nil {
			return lvm.Volume{}, err
		}
	}
	return e.retag(ctx, g, t, v, to, lvmcmd.StateArgs(t, g, v.UUID, v.State, to), func(now lvm.Volume) bool { return now.State == to })
}

// ChangeMove replaces what a volume's tags say of its move: State, Move, Copied, Base and Record of next. It is ChangeState in everything else.
func (e *Engine) ChangeMove(ctx context.Context, s lvm.State, lv lvm.LV, v, next lvm.Volume) (lvm.Volume, error) {
	if v.State != next.State && !lvm.CanMove(v.State, next.State) {
		return lvm.Volume{}, lvm.Errorf(lvm.KindConflict, "volume %s/%s is %s, and no step of a move makes it %s", v.Group, v.ID.LV, v.State, next.State)
	}
	g, err := s.FindGroup(v.ID.VG)
	if err != nil {
		return lvm.Volume{}, err
	}
	t, err := lvmcmd.TargetOf(g.Name, v.ID.LV)
	if err != nil {
		return lvm.Volume{}, err
	}
	return e.retag(ctx, g, t, v, next.State, lvmcmd.MoveArgs(t, g, v.UUID, v.State, lv.Tags, next), func(now lvm.Volume) bool {
		return now.State == next.State && now.Move == next.Move && now.Copied == next.Copied && now.Base == next.Base && now.Record == next.Record
	})
}

// retag runs a command that changes a volume's tags; there reports whether the disks have them.
func (e *Engine) retag(ctx context.Context, g lvm.Group, t lvmcmd.Target, v lvm.Volume, to lvm.VolumeState, argv []string, there func(lvm.Volume) bool) (lvm.Volume, error) {
	done, err := e.Commit(ctx, Change{Group: g, Steps: []lvmcmd.Step{{Argv: argv}}})
	if err != nil {
		return lvm.Volume{}, err
	}
	g, _, now, err := done.State.FindVolume(v.ID)
	switch {
	case err == nil && now.UUID == v.UUID && there(now):
		// Committed, whatever the exit status.
	case done.Failure != nil:
		return lvm.Volume{}, lvm.Errorf(lvm.KindOf(done.Failure), "cannot tag volume %s as %s: %w", t, to, done.Failure)
	case err != nil:
		return lvm.Volume{}, lvm.Errorf(lvm.KindInternal, "volume %s disappeared while the driver tagged it as %s: %w", t, to, err)
	default:
		return lvm.Volume{}, lvm.Errorf(lvm.KindInternal, "another program changed volume %s while the driver tagged it as %s: it is %s now", t, to, now.State)
	}
	done.Warn(e.Log, t.String())
	e.Untagged.drop(v.ID.VG, v.UUID)
	return now, e.Flush(g)
}

// Remove removes a volume or snapshot from its group, provided that it has not changed since the driver read it. LVM
// deactivates it, and refuses while its device is open. state is the one on the disks. The caller holds the group's lock.
func (e *Engine) Remove(ctx context.Context, s lvm.State, id lvm.ID, uuid string, state lvm.VolumeState) error {
	g, err := s.FindGroup(id.VG)
	if err != nil {
		return err
	}
	if lv := g.LVByUUID(uuid); lv != nil {
		if err := CheckNoDependents(g, *lv, "removed"); err != nil {
			return err
		}
		if g, err = e.flushBefore(ctx, g, *lv); err != nil {
			return err
		}
	}
	return e.removeFrom(ctx, g, id, uuid, state)
}

// removeFrom is remove for a thin pool whose pending messages concern no other volume.
func (e *Engine) removeFrom(ctx context.Context, g lvm.Group, id lvm.ID, uuid string, state lvm.VolumeState) error {
	t, err := lvmcmd.TargetOf(g.Name, id.LV)
	if err != nil {
		return err
	}
	removed := lvm.LV{Name: id.LV, UUID: uuid}
	var legs []lvm.LV
	if lv := g.LVByUUID(uuid); lv != nil {
		removed = *lv
		legs = lvm.ComponentsAndPool(g, removed)[1:]
	}
	now, gone, failure, err := e.CommitRemoval(ctx, uuid, Change{Group: g, Legs: legs, Steps: []lvmcmd.Step{{Argv: lvmcmd.RemoveArgs(t, g, uuid, state)}}})
	if err == nil && !gone && removed.Pool != "" && state == lvm.StateCreating {
		now, gone, failure, err = e.CommitRemoval(ctx, uuid, Change{Group: now, Steps: []lvmcmd.Step{{Argv: lvmcmd.DiscardArgs(t, now, uuid)}}})
	}
	switch {
	case err != nil:
		return err // it may still exist
	case !gone:
		return lvm.Errorf(lvm.KindOf(failure), "cannot remove %s: %w", t, OrNoEffect(failure))
	}
	e.Untagged.drop(id.VG, uuid)
	e.RemoveNamesOf(g, now, removed)
	return e.Flush(now)
}

// CommitRemoval is commit for commands that remove a volume. gone reports whether the group lacks it now. On an error it may
// still exist.
func (e *Engine) CommitRemoval(ctx context.Context, uuid string, c Change) (after lvm.Group, gone bool, failure, err error) {
	done, err := e.Commit(ctx, c)
	if err != nil {
		return lvm.Group{}, false, done.Failure, err
	}
	g, err := done.Group()
	if err != nil || g.LVByUUID(uuid) != nil {
		return g, false, done.Failure, err
	}
	if why := g.IncompleteReason(); why != "" {
		return g, false, done.Failure, lvm.Errorf(lvm.KindBusy, "cannot determine whether volume group %s still has the volume: %s", g.Name, why)
	}
	return g, true, done.Failure, nil
}

// CompleteVolume completes a volume that an earlier process left as creating and may have returned: it activates the volume,
// blanks its beginning and end, where signatures are, as lvcreate does, and tags it as ready. The volume holds no user's data,
// because only a ready volume is handed out. The caller holds the group's lock.
func (e *Engine) CompleteVolume(ctx context.Context, s lvm.State, v lvm.Volume) (lvm.Volume, error) {
	g, err := s.FindGroup(v.ID.VG)
	if err != nil {
		return lvm.Volume{}, err
	}
	if err := lvm.CheckWritable(s, g); err != nil { // the missing disk may have newer metadata
		return lvm.Volume{}, lvm.Errorf(lvm.KindBusy, "cannot complete the unfinished volume %s/%s now: %w", v.Group, v.ID.LV, err)
	}
	path, err := e.activateLocked(ctx, s, v)
	if err != nil {
		return lvm.Volume{}, err
	}
	size := v.DeviceSize()
	if v.Class.Layout != lvm.LayoutThin { // the blocks of a thin volume are blank until written
		if err := e.Machine.Kernel.CheckUnused(ctx, path); err != nil {
			return lvm.Volume{}, lvm.Errorf(lvm.KindOf(err), "cannot complete the unfinished volume %s/%s: %w", v.Group, v.ID.LV, err)
		}
		for _, stretch := range [][2]lvm.Bytes{{0, min(blankHead, size)}, {max(0, size-blankTail), size}} {
			if err := e.Machine.Kernel.Zero(ctx, DeviceAt(v, path), stretch[0], stretch[1], nil); err != nil {
				return lvm.Volume{}, lvm.Errorf(lvm.KindInternal, "cannot complete the unfinished volume %s/%s: %w", v.Group, v.ID.LV, err)
			}
		}
	}
	return e.ChangeState(ctx, s, v, lvm.StateReady)
}

// The places of the signatures that libblkid knows: the furthest from the beginning is the last copy of a LUKS2 header, at 4
// MiB; the furthest from the end is that of a RAID controller (libblkid/src/superblocks/promise_raid.c), 3087 sectors before it.
const (
	blankHead = 8 * lvm.MiB
	blankTail = 2 * lvm.MiB
)

// RemoveNamesOf removes the names in the host's /dev that an admin's lvm left for a volume that the driver has just removed,
// and for its hidden LVs, which before lists. Without udev lvm creates such a name with the device, and only lvm would remove
// it. The caller holds the group's lock, so that the driver creates no volume of that name. after is the group's current state.
func (e *Engine) RemoveNamesOf(before, after lvm.Group, lv lvm.LV) {
	var hidden []string
	for _, part := range lvm.Components(before, lv) {
		if part.Thin != nil {
			hidden = append(hidden, dm.MapperName(before.Name, part.Name)+"-tpool")
		}
		if part.UUID != lv.UUID && after.FindLV(part.Name) == nil {
			hidden = append(hidden, dm.MapperName(before.Name, part.Name))
		}
	}
	removed, err := e.Machine.Kernel.RemoveNamesOf(before.Name, lv.Name, hidden)
	if err != nil {
		e.Log.Warn("cannot remove all names in /dev of a removed volume", "vg", before.Name, "lv", lv.Name, "error", err)
	}
	if len(removed) > 0 {
		e.Log.Info("removed names in /dev that an lvm command left for a removed volume", "vg", before.Name, "lv", lv.Name, "names", removed)
	}
}
