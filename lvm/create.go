package lvm

import (
	"context"
	"errors"
	"slices"
)

// creating is a Create request, as flights compare it.
type creating struct{ spec Spec }

// Create makes a volume, or finds the one that an equal request made. Two LVM processes for a new volume, none for one
// that is there; a third, before them, where an earlier attempt was cut off. KindExists: the name is taken by something
// else; KindNoRoom: this node cannot have it now; KindInvalid, KindOutOfRange: no node ever can; KindBusy: ask again.
func (h *Host) Create(ctx context.Context, spec Spec) (Volume, error) {
	spec, err := checkSpec(spec)
	if err != nil {
		return Volume{}, err
	}
	return fly(ctx, &h.flights, lvName(spec.Name), creating{spec}, func(ctx context.Context) (Volume, error) {
		return h.create(ctx, spec)
	})
}

// errChanged: what was planned does not hold any more, since somebody else changed the groups meanwhile.
var errChanged = errors.New("the volume groups changed meanwhile")

// createAttempts bounds how often a plan is made anew: for a leftover, and for an admin's own commands in between.
const createAttempts = 5

func (h *Host) create(ctx context.Context, spec Spec) (Volume, error) {
	for range createAttempts {
		v, err := h.tryCreate(ctx, spec)
		if !errors.Is(err, errChanged) {
			return v, err
		}
	}
	return Volume{}, Errorf(KindBusy, "volume %q: the volume groups of this node are being changed by somebody else all the time; ask again", spec.Name)
}

// tryCreate plans without the group's lock, to learn which group it is, and once more with it.
func (h *Host) tryCreate(ctx context.Context, spec Spec) (Volume, error) {
	_, p, err := h.plan(ctx, spec)
	if err != nil {
		return Volume{}, err
	}
	if p.ready != nil {
		return *p.ready, nil
	}
	group := p.group()
	unlock, err := h.writers.lock(ctx, group)
	if err != nil {
		return Volume{}, Errorf(KindBusy, "volume %q: waiting for its volume group: %w", spec.Name, err)
	}
	defer unlock()
	s, p, err := h.plan(ctx, spec)
	switch {
	case err != nil:
		return Volume{}, err
	case p.ready != nil:
		return *p.ready, nil
	case p.group() != group:
		return Volume{}, errChanged
	case p.leftover != nil:
		if err := h.remove(ctx, s, *p.leftover); err != nil {
			return Volume{}, err
		}
		return Volume{}, errChanged
	default:
		return h.carve(ctx, spec, p.carve)
	}
}

// plan reads the disks and plans one volume.
func (h *Host) plan(ctx context.Context, spec Spec) (State, placement, error) {
	s, err := h.read(ctx)
	if err != nil {
		return State{}, placement{}, err
	}
	ps, err := plan(s, h.cfg.Cluster, []Spec{spec})
	if err != nil {
		return State{}, placement{}, err
	}
	return s, ps[0], nil
}

// group is the UUID of the group that a placement would change.
func (p placement) group() string {
	if p.leftover != nil {
		return p.leftover.ID.VG
	}
	return p.carve.group.UUID
}

// carve makes the volume: one commit for the extents, the tags and the state "creating"; and, once its beginning is
// blank, one for the state "ready".
func (h *Host) carve(ctx context.Context, spec Spec, c *carving) (Volume, error) {
	t, err := targetOf(c.group.Name, c.volume.ID.LV)
	if err != nil {
		return Volume{}, err
	}
	if _, err := h.machine.Runner.Run(ctx, createArgs(t, c)); err != nil {
		return Volume{}, h.afterFailedCreate(ctx, spec, c, err)
	}
	s, err := h.read(ctx)
	if err != nil {
		return Volume{}, err
	}
	_, _, v, err := s.find(c.volume.ID)
	if err != nil {
		return Volume{}, Errorf(KindInternal, "volume %q was made, and cannot be found: %w", spec.Name, err)
	}
	return h.changeState(ctx, s, v, StateReady)
}

// afterFailedCreate finds out what a failed lvcreate left, and removes it: LVM's exit status tells nothing, and what it
// committed would hold its extents for ever. What it returns is the reason that the disks show now, if there is one.
func (h *Host) afterFailedCreate(ctx context.Context, spec Spec, c *carving, failure error) error {
	failure = Errorf(KindInternal, "volume %q with %s could not be made in volume group %s: %w", spec.Name, c.volume.Size, c.group.Name, failure)
	s, p, err := h.plan(ctx, spec)
	switch {
	case err != nil:
		return Errorf(KindOf(err), "%w (seen after: %w)", err, failure)
	case p.leftover != nil && p.leftover.ID == c.volume.ID:
		if err := h.remove(ctx, s, *p.leftover); err != nil {
			h.log.Warn("what a failed create left behind is still there; a retry or the next start removes it", "error", err)
		}
		return failure
	case p.carve != nil && p.group() == c.group.UUID && slices.Equal(p.carve.ranges, c.ranges):
		return failure // nothing changed: trying again would fail again
	default:
		return errChanged
	}
}

// changeState moves a volume to another state and returns it as it stands on the disks afterwards, flushed.
func (h *Host) changeState(ctx context.Context, s State, v Volume, to VolumeState) (Volume, error) {
	g, _, _, err := s.find(v.ID)
	if err != nil {
		return Volume{}, err
	}
	t, err := targetOf(g.Name, v.ID.LV)
	if err != nil {
		return Volume{}, err
	}
	_, failure := h.machine.Runner.Run(ctx, stateArgs(t, g, v.UUID, v.State, to))
	s, err = h.read(ctx)
	if err != nil {
		return Volume{}, err
	}
	g, _, now, err := s.find(v.ID)
	switch {
	case err == nil && now.UUID == v.UUID && now.State == to:
		// Committed, whatever the exit status.
	case failure != nil:
		return Volume{}, Errorf(KindInternal, "volume %s could not be marked as %s: %w", t, to, failure)
	case err != nil:
		return Volume{}, Errorf(KindInternal, "volume %s went away while it was being marked as %s: %w", t, to, err)
	default:
		return Volume{}, Errorf(KindInternal, "volume %s was changed by somebody else while it was being marked as %s: it is %s now", t, to, now.State)
	}
	if failure != nil {
		h.log.Warn("LVM reported a failure and did what it was asked", "volume", t.String(), "error", failure)
	}
	return now, h.flush(g)
}

// flush makes a commit survive a power cut: LVM itself does not flush the disks' caches (its writes are O_DIRECT).
func (h *Host) flush(g Group) error {
	var paths []string
	for _, pv := range g.PVs {
		if pv.Device != "" {
			paths = append(paths, pv.Device)
		}
	}
	if err := h.machine.Kernel.Sync(paths); err != nil {
		return Errorf(KindInternal, "volume group %s was changed, but its disks could not be flushed: %w", g.Name, err)
	}
	return nil
}
