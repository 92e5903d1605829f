package wipe

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
)

// ZeroExtents zeroes these extents of a new volume. It holds no lock of the group, because that can take hours, and ends when the
// driver stops.
func (w *Wiper) ZeroExtents(ctx context.Context, id lvm.ID, extents []lvm.Run) error {
	s, err := w.engine.ReadState(ctx)
	if err != nil {
		return err
	}
	g, lv, v, err := s.FindVolume(id)
	if err != nil {
		return err
	}
	left := g.Bytes(alloc.CountOf(extents))
	turn, err := w.newVolumeQueue.Wait(w.tasks.Context(), id.VG, left) //nolint:contextcheck // the volume is zeroed to the end, or to that of the driver
	if err != nil {
		return err
	}
	defer turn.End()
	path, err := w.engine.EnsureActive(ctx, g, lv, v)
	if err != nil {
		return err
	}
	w.engine.Log.Info("zeroing the extents of a new raw block volume that may hold other users' data", "volume", id.String(), "bytes", int64(left))
	for _, r := range extents {
		at := g.Bytes(r.Start)
		err := w.engine.Machine.Kernel.Zero(w.tasks.Context(), engine.DeviceAt(v, path), at, g.Bytes(r.End()), func(until lvm.Bytes) { //nolint:contextcheck // as above
			left, at = left-(until-at), until
			turn.Pause(w.tasks.Context(), left)
		})
		if err != nil {
			return err
		}
	}
	return w.noFailedLeg(g, lv, path)
}
