package host

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

// SetReplayed records that the journal of a read-only copy was replayed: from the next activation on, and at once, its device takes no
// writes (that of an encrypted volume does, for its header). The caller has unmounted it. One LVM process; none if it is recorded already.
// What the replay wrote is on the disks before the record, so a power cut never leaves a record without it. KindInUse: the device is open;
// KindInvalid: it is no read-only copy; KindNotFound, KindNotLocal: as Lookup; KindBusy: retry.
func (h *Host) SetReplayed(ctx context.Context, id lvm.ID, uuid string) error {
	s, unlock, err := h.engine.Locked(ctx, id.VG, "recording the replayed journal of volume "+id.LV, h.engine.ReadState)
	if err != nil {
		return err
	}
	defer unlock()
	g, lv, v, err := s.FindVolume(id)
	switch {
	case err != nil:
		return err
	case v.UUID != uuid:
		return g.AbsentError("volume %s was removed and %s/%s created again (UUID %s instead of %s)", id, v.Group, id.LV, v.UUID, uuid)
	case v.State != lvm.StateReady:
		return engine.NotReady(g, v)
	case v.Access == lvm.AccessWritable:
		return lvm.Errorf(lvm.KindInvalid, "volume %s/%s is writable, and only a copy that was created read-only becomes read-only", v.Group, id.LV)
	case v.Access != lvm.AccessReplay:
		return nil
	}
	if err := lvm.CheckWritable(s, g); err != nil {
		return err
	}
	to, err := h.flushReplay(ctx, g, lv, v)
	if err != nil {
		return err
	}
	return h.tagReadOnly(ctx, g, v, to)
}

// flushReplay writes what the replay wrote to the disks, and decides how the volume counts from now on. It refuses a device that is in use.
func (h *Host) flushReplay(ctx context.Context, g lvm.Group, lv lvm.LV, v lvm.Volume) (to lvm.Access, err error) {
	path, active, err := h.engine.FindDevice(ctx, v.ID, v.UUID)
	switch {
	case err != nil:
		return "", err
	case !active:
		return "", lvm.Errorf(lvm.KindBusy, "volume %s/%s was deactivated after the replay of its journal; retry", v.Group, v.ID.LV)
	}
	if err := h.engine.Machine.Kernel.CheckUnused(ctx, path); err != nil {
		return "", lvm.Errorf(lvm.KindOf(err), "volume %s/%s cannot become read-only: %w", v.Group, v.ID.LV, err)
	}
	if err := h.engine.Machine.Kernel.Sync([]string{path}); err != nil {
		return "", lvm.Errorf(lvm.KindInternal, "cannot flush volume %s/%s after the replay of its journal: %w", v.Group, v.ID.LV, err)
	}
	writes, size, err := h.engine.Machine.Kernel.Writes(path)
	if err != nil {
		return "", lvm.Errorf(lvm.KindInternal, "cannot determine what the replay of its journal wrote to volume %s/%s: %w", v.Group, v.ID.LV, err)
	}
	return alloc.AccessAfterReplay(g, lv, writes, size), nil
}

func (h *Host) tagReadOnly(ctx context.Context, g lvm.Group, v lvm.Volume, to lvm.Access) error {
	t, err := lvmcmd.TargetOf(g.Name, v.ID.LV)
	if err != nil {
		return err
	}
	done, err := h.engine.Commit(ctx, engine.Change{Group: g, Steps: []lvmcmd.Step{{Argv: lvmcmd.ReadOnlyArgs(t, g, v, to)}}})
	if err != nil {
		return err
	}
	g, _, now, err := done.State.FindVolume(v.ID)
	switch {
	case err != nil:
		return err
	case now.UUID != v.UUID || now.Access != to:
		return lvm.Errorf(lvm.KindInternal, "cannot make volume %s read-only: %w", t, done.Cause())
	}
	if err := h.engine.ResumeVolume(ctx, g, now); err != nil { // an interrupted command leaves the device suspended
		return err
	}
	done.Warn(h.engine.Log, t.String())
	return h.engine.Flush(g)
}
