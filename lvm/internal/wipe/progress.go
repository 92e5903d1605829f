package wipe

import (
	"context"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

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
