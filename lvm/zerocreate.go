package lvm

import "context"

// unzeroedRest is what of a new raw block volume is to be zeroed before it is answered. errChanged: it was planned on extents that
// were known to be zero, and what was known does not hold any more.
func unzeroedRest(c *carving, g Group, lv LV) ([]Run, error) {
	if !c.volume.Block || c.volume.Class.Layout == LayoutThin {
		return nil, nil
	}
	steps, err := createSteps(c)
	if err != nil {
		return nil, err
	}
	foreign := g.Seqno-c.group.Seqno > commitsOf(steps) // somebody may have had the extents since they were looked at
	switch {
	case c.volume.State == StateZeroing && foreign:
		return []Run{{Start: 0, Count: lv.Extents}}, nil
	case c.volume.State == StateZeroing:
		return stretchesOn(g, lv, unzeroedIn(c.group, c.ranges)), nil
	case foreign:
		return nil, errChanged
	}
	return nil, nil
}

// zeroNew zeroes what of a new volume is not known to be zero, and marks it as ready: only then it is answered. The group's
// lock is not held: it can take hours. One that fails, or that the driver's end cuts off, is never used.
func (h *Host) zeroNew(ctx context.Context, m made) (Volume, error) {
	err := h.zeroRest(ctx, m)
	s, unlock, lockErr := h.locked(ctx, m.ID.VG, "ending the zeroing of volume "+m.ID.LV, h.readRaw)
	if lockErr != nil {
		return Volume{}, Errorf(KindBusy, "volume %q is not zeroed yet: ask again: %w", m.Name, lockErr)
	}
	defer unlock()
	g, lv, v, findErr := s.find(m.ID)
	switch {
	case findErr != nil:
		return Volume{}, Errorf(KindBusy, "volume %q went away while it was being zeroed: ask again: %w", m.Name, findErr)
	case v.UUID != m.UUID || v.State != StateZeroing || v.Size != m.Size:
		return Volume{}, Errorf(KindBusy, "volume %s/%s was changed by somebody else while it was being zeroed: ask again", g.Name, lv.Name)
	case h.closing.Err() != nil:
		return Volume{}, Errorf(KindBusy, "volume %q is not zeroed yet, and the driver is shutting down: ask again", m.Name)
	case err != nil:
		err = Errorf(KindInternal, "volume %s/%s must be zeroed before it is handed out, since its extents may hold data of others, and could not be: %w", g.Name, lv.Name, err)
		if removal := h.remove(ctx, s, v.ID, v.UUID, v.State); removal != nil {
			return Volume{}, Errorf(KindBusy, "%w; it is removed when it is asked for again: %w", err, removal)
		}
		return Volume{}, err
	}
	v, err = h.changeState(ctx, s, v, StateReady)
	if err != nil {
		return Volume{}, Errorf(KindBusy, "volume %q is zeroed, and cannot be marked as ready yet: ask again: %w", m.Name, err)
	}
	return v, nil
}

func (h *Host) zeroRest(ctx context.Context, m made) error {
	s, err := h.read(ctx)
	if err != nil {
		return err
	}
	g, lv, v, err := s.find(m.ID)
	if err != nil {
		return err
	}
	left := g.bytes(countOf(m.rest))
	turn, err := h.zeroing.wait(h.closing, m.ID.VG, left) //nolint:contextcheck // the volume is zeroed to the end, or to that of the driver
	if err != nil {
		return err
	}
	defer turn.end()
	path, err := h.device(ctx, v)
	if err != nil {
		return err
	}
	h.log.Info("a new raw block volume is zeroed where its extents may hold data of others", "volume", m.ID.String(), "bytes", int64(left))
	for _, r := range m.rest {
		at := g.bytes(r.Start)
		err := h.machine.Kernel.Zero(h.closing, deviceAt(v, path), at, g.bytes(r.end()), func(until Bytes) { //nolint:contextcheck // as above
			left, at = left-(until-at), until
			turn.pause(h.closing, left)
		})
		if err != nil {
			return err
		}
	}
	return h.everyLeg(g, lv, path)
}
