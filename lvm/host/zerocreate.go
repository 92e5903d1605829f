package host

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

// unzeroedRest returns the extents of a new raw block volume to zero before Create returns it. errChanged: the plan relied on
// extents that were known to be zero, and another program may have used them since.
func unzeroedRest(c *alloc.Allocation, g lvm.Group, lv lvm.LV) ([]lvm.Run, error) {
	if !c.Volume.Block || c.Volume.Class.Layout == lvm.LayoutThin {
		return nil, nil
	}
	steps, err := lvmcmd.CreateSteps(c)
	if err != nil {
		return nil, err
	}
	foreign := g.Seqno-c.Group.Seqno > lvmcmd.CommitsOf(steps) // another program may have used the extents since
	switch {
	case c.Volume.State == lvm.StateZeroing && foreign:
		return []lvm.Run{{Start: 0, Count: lv.Extents}}, nil
	case c.Volume.State == lvm.StateZeroing:
		return alloc.RangesOn(g, lv, alloc.UnzeroedIn(c.Group, c.Ranges)), nil
	case foreign:
		return nil, errChanged
	}
	return nil, nil
}

// zeroNew zeroes the extents with unknown content and then tags the volume as ready; only then Create returns it. It does not
// hold the group's lock: zeroing can take hours. A volume whose zeroing fails or is interrupted is never used.
func (h *Host) zeroNew(ctx context.Context, m created) (lvm.Volume, error) {
	err := h.wiper.ZeroExtents(ctx, m.ID, m.rest)
	s, unlock, lockErr := h.engine.Locked(ctx, m.ID.VG, "completing the zeroing of volume "+m.ID.LV, h.engine.ReadDisks)
	if lockErr != nil {
		return lvm.Volume{}, lvm.Errorf(lvm.KindBusy, "volume %q is not zeroed yet; retry: %w", m.Name, lockErr)
	}
	defer unlock()
	g, lv, v, findErr := s.FindVolume(m.ID)
	switch {
	case findErr != nil:
		return lvm.Volume{}, lvm.Errorf(lvm.KindBusy, "volume %q was removed while the driver zeroed it; retry: %w", m.Name, findErr)
	case v.UUID != m.UUID || v.State != lvm.StateZeroing || v.Size != m.Size:
		return lvm.Volume{}, lvm.Errorf(lvm.KindBusy, "another program changed volume %s/%s while the driver zeroed it; retry", g.Name, lv.Name)
	case h.tasks.IsStopped():
		return lvm.Volume{}, lvm.Errorf(lvm.KindBusy, "volume %q is not zeroed yet, and the driver is shutting down; retry", m.Name)
	case err != nil:
		err = lvm.Errorf(lvm.KindInternal, "cannot zero volume %s/%s, so the driver does not create it: its extents may hold other users' data: %w", g.Name, lv.Name, err)
		if removal := h.engine.Remove(ctx, s, v.ID, v.UUID, v.State); removal != nil {
			return lvm.Volume{}, lvm.Errorf(lvm.KindBusy, "%w; the next request removes it: %w", err, removal)
		}
		return lvm.Volume{}, err
	}
	v, err = h.engine.ChangeState(ctx, s, v, lvm.StateReady)
	if err != nil {
		return lvm.Volume{}, lvm.Errorf(lvm.KindBusy, "volume %q is zeroed, but the driver cannot tag it as ready yet; retry: %w", m.Name, err)
	}
	return v, nil
}
