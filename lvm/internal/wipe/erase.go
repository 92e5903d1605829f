package wipe

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// IsErased reports whether the driver destroys the key slots of a deleted volume instead of its data. A snapshot or copy has
// the same volume key in its own header, and so may the other side of a move, so there it would prove nothing; an admin's lvconvert can have left another copy of it.
func (w *Wiper) IsErased(g lvm.Group, lv lvm.LV, v lvm.Volume) bool {
	if v.Class.Encryption == lvm.EncryptionNone || w.engine.Config.Encryption == nil {
		return false
	}
	return v.Source == lvm.ID{} && v.Move == "" && lv.Origin == "" && len(lv.UsedBy) == 0 && strings.HasPrefix(lv.Type, string(v.Class.Layout)) &&
		!slices.ContainsFunc(g.LVs, func(other lvm.LV) bool { return other.Origin == lv.Name })
}

// erase destroys the key slots of a deleted volume, on all its disks.
func (w *Wiper) erase(ctx context.Context, g lvm.Group, lv lvm.LV, v lvm.Volume) error {
	path, err := w.writable(ctx, g, lv, v)
	if err != nil {
		return err
	}
	err = w.engine.Config.Encryption.Erase(ctx, v, path, func() error {
		now, active, err := w.engine.FindDevice(ctx, v.ID, v.UUID)
		if err == nil && (!active || now != path) {
			err = lvm.Errorf(lvm.KindBusy, "device %s is no longer volume %s: another program deactivated it", path, v.ID)
		}
		return err
	})
	if err != nil {
		return err
	}
	w.left(v, v.DeviceSize())
	return w.everyLeg(g, lv, path)
}

// clear makes the data of a deleted volume unreadable: by zeroes, or by the destruction of its keys. Nil without an error: it wrote no
// zeroes, or another volume has the name by now.
func (w *Wiper) clear(ctx context.Context, v lvm.Volume, turn *oplock.ZeroSlot) (*zeroedPrefix, error) {
	s, err := w.engine.ReadState(ctx)
	if err != nil {
		return nil, err
	}
	g, lv, now, err := s.FindVolume(v.ID)
	if err != nil {
		return nil, err
	}
	switch {
	case now.UUID != v.UUID || now.State != lvm.StateDeleting:
		return nil, nil
	case w.IsErased(g, lv, now):
		return nil, w.unlessFull(ctx, g, lv, now, w.erase(ctx, g, lv, now))
	case !IsWiped(now):
		return nil, nil
	}
	return w.zero(ctx, g, lv, now, turn)
}

// unlessFull returns the failure of an erasure, or nil in a full thin pool, where only a removal frees blocks. A header that was never written, or
// that shares its blocks with a volume restored from a deleted snapshot, takes new ones.
func (w *Wiper) unlessFull(ctx context.Context, g lvm.Group, lv lvm.LV, v lvm.Volume, failure error) error {
	pool := g.FindLV(lv.Pool)
	if failure == nil || lvm.KindOf(failure) != lvm.KindInternal || ctx.Err() != nil || pool == nil {
		return failure
	}
	s, err := w.engine.PoolStatus(g, *pool)
	if err != nil || s == nil || !s.IsFull() {
		return failure
	}
	w.engine.Log.Warn("the key slots of a deleted volume are not destroyed, because its thin pool is full; it is removed", "volume", v.ID.String(), "pool", lv.Pool, "error", failure)
	return nil
}

// toWrite is how much the wiper writes on a deleted volume at most, which decides whose turn comes first.
func toWrite(v lvm.Volume) lvm.Bytes {
	if v.Class.Encryption != lvm.EncryptionNone {
		return lvm.LUKSHeaderSize
	}
	return v.DeviceSize()
}

// A tag of the volume records the progress of its wipe: it belongs to this very volume and outlives the driver and its host's
// files. A commit is expensive, so the driver writes the tag once a minute and when it stops; a crash costs at most that much
// repeated zeroing.
const wipeSave = time.Minute

// saveWiped updates the progress tag. If that fails, a crash costs more zeroing, nothing else.
func (w *Wiper) saveWiped(ctx context.Context, v lvm.Volume, from, to lvm.Bytes) {
	s, unlock, err := w.engine.Locked(ctx, v.ID.VG, "saving how far volume "+v.ID.LV+" is wiped", w.engine.ReadDisks)
	if err != nil {
		return
	}
	defer unlock()
	g, _, now, err := s.FindVolume(v.ID)
	if err != nil || now.UUID != v.UUID || now.Wiped != from || lvm.CheckNoNewMissingPV(g) != nil {
		return
	}
	t, err := lvmcmd.TargetOf(g.Name, v.ID.LV)
	if err != nil {
		return
	}
	if err := w.engine.Run(ctx, g, []lvmcmd.Step{{Argv: wipedArgs(t, g, v.UUID, from, to)}}); err != nil {
		w.engine.Log.Info("cannot save the progress of a wipe", "volume", v.ID.String(), "error", err)
	}
}

func wipedArgs(t lvmcmd.Target, g lvm.Group, uuid string, from, to lvm.Bytes) []string {
	args := append(lvmcmd.OnDevices("lvchange", g), "-S", lvmcmd.Selection(g, uuid, lvm.StateDeleting))
	if from > 0 {
		args = append(args, "--deltag", lvm.WipedTag(from))
	}
	return append(args, "--addtag", lvm.WipedTag(to), "--", t.String())
}
