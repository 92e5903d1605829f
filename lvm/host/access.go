package host

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

// BeginReplay records that the replay of the journal of a read-only copy begins. If an earlier one was interrupted, so that nothing tells what it
// wrote, the copy counts with its full size from now on. The record is on the disks before the replay writes. One LVM process; none if it is
// recorded already. KindInvalid: it is no read-only copy; KindNotFound, KindNotLocal: as Lookup; KindBusy: retry.
func (h *Host) BeginReplay(ctx context.Context, id lvm.ID, uuid string) error {
	s, unlock, err := h.engine.Locked(ctx, id.VG, "recording that the replay of the journal of volume "+id.LV+" begins", h.engine.ReadState)
	if err != nil {
		return err
	}
	defer unlock()
	g, _, v, err := findCopy(s, id, uuid)
	switch {
	case err != nil:
		return err
	case !v.Access.NeedsReplay():
		return lvm.Errorf(lvm.KindBusy, "the journal of volume %s/%s was replayed in the meantime; retry", v.Group, id.LV)
	}
	_, whole := h.replays.Load(v.UUID)
	if v.Access == lvm.AccessReplayingFull || v.Access == lvm.AccessReplaying && whole {
		return nil
	}
	if err := lvm.CheckWritable(s, g); err != nil {
		return err
	}
	switch _, active, err := h.engine.FindDevice(ctx, v.ID, v.UUID); {
	case err != nil:
		return err
	case !active:
		return lvm.Errorf(lvm.KindBusy, "volume %s/%s was deactivated before the replay of its journal; retry", v.Group, id.LV)
	}
	if v.Access == lvm.AccessReplaying {
		return h.tagAccess(ctx, g, v, lvm.AccessReplayingFull)
	}
	if err := h.tagAccess(ctx, g, v, lvm.AccessReplaying); err != nil {
		return err
	}
	h.replays.Store(v.UUID, nil)
	return nil
}

// SetReplayed records that the journal of a read-only copy was replayed: from the next activation on, and at once, its device takes no
// writes (that of an encrypted volume does, for its header). The caller has unmounted it. One LVM process; none if it is recorded already.
// What the replay wrote is on the disks before the record, so a power cut never leaves a record without it. The copy counts with its full
// size from then on, unless this process saw the whole replay and that wrote little. KindInUse: the device is open; KindInvalid: it is no
// read-only copy; KindNotFound, KindNotLocal: as Lookup; KindBusy: retry.
func (h *Host) SetReplayed(ctx context.Context, id lvm.ID, uuid string) error {
	s, unlock, err := h.engine.Locked(ctx, id.VG, "recording the replayed journal of volume "+id.LV, h.engine.ReadState)
	if err != nil {
		return err
	}
	defer unlock()
	g, lv, v, err := findCopy(s, id, uuid)
	if err != nil || !v.Access.NeedsReplay() {
		return err
	}
	if err := lvm.CheckWritable(s, g); err != nil {
		return err
	}
	to, err := h.flushReplay(ctx, g, lv, v)
	if err != nil {
		return err
	}
	if err := h.tagAccess(ctx, g, v, to); err != nil {
		return err
	}
	h.replays.Delete(v.UUID)
	return nil
}

// findCopy finds a ready read-only copy.
func findCopy(s lvm.State, id lvm.ID, uuid string) (g lvm.Group, lv lvm.LV, v lvm.Volume, err error) {
	g, lv, v, err = engine.FindReady(s, id, uuid)
	if err == nil && v.Access == lvm.AccessWritable {
		err = lvm.Errorf(lvm.KindInvalid, "volume %s/%s is writable, and only a copy that was created read-only becomes read-only", v.Group, id.LV)
	}
	return g, lv, v, err
}

// flushReplay writes what the replay wrote to the disks, and decides how the volume counts from now on. It refuses a device that is in use.
func (h *Host) flushReplay(ctx context.Context, g lvm.Group, lv lvm.LV, v lvm.Volume) (to lvm.Access, err error) {
	path, active, err := h.engine.FindDevice(ctx, v.ID, v.UUID)
	switch {
	case err != nil:
		return "", err
	case !active:
		h.replays.Delete(v.UUID)
		return "", lvm.Errorf(lvm.KindBusy, "volume %s/%s was deactivated after the replay of its journal; retry", v.Group, v.ID.LV)
	}
	if err := h.engine.Machine.Kernel.CheckUnused(ctx, path); err != nil {
		return "", lvm.Errorf(lvm.KindOf(err), "volume %s/%s cannot become read-only: %w", v.Group, v.ID.LV, err)
	}
	if err := h.engine.Machine.Kernel.Sync([]string{path}); err != nil {
		return "", lvm.Errorf(lvm.KindInternal, "cannot flush volume %s/%s after the replay of its journal: %w", v.Group, v.ID.LV, err)
	}
	if _, whole := h.replays.Load(v.UUID); !whole {
		return lvm.AccessReadOnlyFull, nil
	}
	writes, size, err := h.engine.Machine.Kernel.Writes(path)
	if err != nil {
		return "", lvm.Errorf(lvm.KindInternal, "cannot determine what the replay of its journal wrote to volume %s/%s: %w", v.Group, v.ID.LV, err)
	}
	return alloc.AccessAfterReplay(g, lv, writes, size), nil
}

// tagAccess records the next access of a read-only copy.
func (h *Host) tagAccess(ctx context.Context, g lvm.Group, v lvm.Volume, to lvm.Access) error {
	t, err := lvmcmd.TargetOf(g.Name, v.ID.LV)
	if err != nil {
		return err
	}
	done, err := h.engine.Commit(ctx, engine.Change{Group: g, Steps: []lvmcmd.Step{{Argv: lvmcmd.AccessArgs(t, g, v, to)}}})
	if err != nil {
		return err
	}
	g, _, now, err := done.State.FindVolume(v.ID)
	switch {
	case err != nil:
		return err
	case now.UUID != v.UUID || now.Access != to:
		return lvm.Errorf(lvm.KindInternal, "cannot record the access %q of volume %s: %w", to, t, done.Cause())
	}
	if err := h.engine.ResumeVolume(ctx, g, now); err != nil { // an interrupted command leaves the device suspended
		return err
	}
	done.Warn(h.engine.Log, t.String())
	return h.engine.Flush(g)
}
