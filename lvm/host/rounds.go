package host

import (
	"context"
	"errors"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// Rounds: snapshots of a thin volume that is about to move, and what changed between them. Only moves use these methods; without one they start no
// process.

// TakeRound creates a round of a volume, or finds the one that an equal request created. The errors are those of alloc.PlanRound;
// KindInsufficientCapacity: its pool is too full; KindBusy: retry, perhaps after the file system is thawed.
func (h *Host) TakeRound(ctx context.Context, spec lvm.RoundSpec) (lvm.Round, error) {
	return oplock.Do(ctx, &h.operations, lvm.RoundName(spec.Move), spec, func(ctx context.Context) (lvm.Round, error) {
		return planAgain("volume "+spec.Source.String(), func() (lvm.Round, error) { return h.takeRound(ctx, spec) })
	})
}

func (h *Host) takeRound(ctx context.Context, spec lvm.RoundSpec) (lvm.Round, error) {
	s, unlock, err := h.engine.Locked(ctx, spec.Source.VG, "creating a snapshot for the move of volume "+spec.Source.LV, h.engine.ReadState)
	if err != nil {
		return lvm.Round{}, err
	}
	defer unlock()
	p, err := alloc.PlanRound(h.reserved.ApplyFor(s, lvm.LayoutThin), h.engine.Config.Cluster, spec)
	switch {
	case err != nil:
		return lvm.Round{}, err
	case p.Ready != nil:
		return *p.Ready, nil
	case p.Leftover != nil:
		if err := h.engine.Remove(ctx, s, p.Leftover.ID, p.Leftover.UUID, lvm.StateCreating); err != nil {
			return lvm.Round{}, err
		}
		return lvm.Round{}, errChanged
	}
	if err := h.checkRoundRoom(p.Group, p); err != nil {
		return lvm.Round{}, err
	}
	if err := h.engine.CheckTransaction(p.Group, p.Round.Pool); err != nil {
		return lvm.Round{}, err
	}
	if err := h.freezable(ctx, p.Group, p.Source); err != nil {
		return lvm.Round{}, err
	}
	return h.createRound(ctx, s, p)
}

// checkRoundRoom checks the kernel's status of the pool, unless it is extended first, or inactive.
func (h *Host) checkRoundRoom(g lvm.Group, p alloc.RoundPlacement) error {
	pool := g.FindLV(p.Round.Pool)
	if p.Pool != nil || pool == nil {
		return nil
	}
	status, err := h.engine.PoolStatus(g, *pool)
	if err != nil || status == nil {
		return err
	}
	return alloc.CheckRoundRoom(g, pool.Name, *status)
}

// createRound runs lvcreate, verifies what it committed, and tags the round as ready. It removes a failed one and resumes the volume.
func (h *Host) createRound(ctx context.Context, s lvm.State, p alloc.RoundPlacement) (lvm.Round, error) {
	steps, err := lvmcmd.RoundSteps(p)
	if err != nil {
		return lvm.Round{}, err
	}
	done, err := h.engine.Commit(ctx, engine.Change{Group: p.Group, Steps: steps, Legs: p.Group.ComponentsByName(p.Round.Pool)})
	if done.Failure != nil {
		h.resumeSource(ctx, s, p.Round.Source)
	}
	if err != nil {
		return lvm.Round{}, err
	}
	g, err := done.Group()
	if err != nil {
		return lvm.Round{}, err
	}
	made, is := lvm.Round{}, false
	if lv := g.FindLV(p.Round.ID.LV); lv != nil {
		made, is = lv.AsRound()
	}
	if done.Failure == nil && is {
		return h.tagRound(ctx, g, made, lvm.StateReady)
	}
	if is {
		if err := h.engine.Remove(ctx, done.State, made.ID, made.UUID, lvm.StateCreating); err != nil {
			h.log.Warn("cannot remove an unfinished snapshot for a move; the next start removes it", "lv", made.ID.String(), "error", err)
		}
	}
	return lvm.Round{}, lvm.Errorf(lvm.KindInternal, "cannot create a snapshot of volume %s/%s for its move: %w", g.Name, p.Round.Source.LV, done.Cause())
}

// tagRound moves a round to another state, and flushes the commit. The caller holds the group's lock.
func (h *Host) tagRound(ctx context.Context, g lvm.Group, r lvm.Round, to lvm.VolumeState) (lvm.Round, error) {
	if r.State == to {
		return r, h.engine.Flush(g)
	}
	t, err := lvmcmd.TargetOf(g.Name, r.ID.LV)
	if err != nil {
		return r, err
	}
	done, err := h.engine.Commit(ctx, engine.Change{Group: g, Steps: []lvmcmd.Step{{Argv: lvmcmd.StateArgs(t, g, r.UUID, r.State, to)}}})
	if err != nil {
		return r, err
	}
	if g, err = done.Group(); err != nil {
		return r, err
	}
	now, err := g.FindRound(r.ID, r.UUID)
	if err != nil || now.State != to {
		return r, lvm.Errorf(lvm.KindOf(done.Failure), "cannot tag %s as %s: %w", t, to, done.Cause())
	}
	return now, h.engine.Flush(g)
}

// Rounds lists this cluster's rounds, in any state. It starts no process.
func (h *Host) Rounds(ctx context.Context) (all []lvm.Round, err error) {
	s, err := h.engine.ReadState(ctx)
	if err != nil {
		return nil, err
	}
	for _, g := range s.Groups {
		all = append(all, g.Rounds(h.engine.Config.Cluster)...)
	}
	return all, nil
}

// FitsPool returns an error (KindInsufficientCapacity) if the pool of a round has become too full for it: the pods come first.
func (h *Host) FitsPool(ctx context.Context, r lvm.Round) error {
	s, err := h.engine.ReadState(ctx)
	if err != nil {
		return err
	}
	g, err := s.FindGroup(r.ID.VG)
	if err != nil {
		return err
	}
	pool := g.FindLV(r.Pool)
	if pool == nil {
		return nil
	}
	status, err := h.engine.PoolStatus(g, *pool)
	if err != nil || status == nil {
		return err
	}
	return alloc.CheckRoundsFit(g, pool.Name, *status)
}

// DropRound removes a round. Nil if its readable group lacks it. KindInUse: it is being sent.
func (h *Host) DropRound(ctx context.Context, id lvm.ID, uuid string) error {
	_, err := oplock.Do(ctx, &h.operations, id.LV, uuid, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, h.dropRound(ctx, id, uuid, func(lvm.Round) bool { return true })
	})
	return err
}

// dropUnfinishedRound removes a round that a failed command left. One that a request has completed meanwhile stays.
func (h *Host) dropUnfinishedRound(ctx context.Context, id lvm.ID, uuid string) error {
	_, err := oplock.Do(ctx, &h.operations, id.LV, "unfinished "+uuid, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, h.dropRound(ctx, id, uuid, func(r lvm.Round) bool { return r.State == lvm.StateCreating })
	})
	return err
}

func (h *Host) dropRound(ctx context.Context, id lvm.ID, uuid string, is func(lvm.Round) bool) error {
	if err := h.lockComparing(ctx); err != nil {
		return err
	}
	defer h.unlockComparing()
	s, unlock, err := h.engine.Locked(ctx, id.VG, "removing a snapshot of a move, "+id.LV, h.engine.ReadDisks)
	if err != nil {
		return err
	}
	defer unlock()
	g, r, there, err := findRound(s, id, uuid)
	if err != nil || !there || !is(r) {
		return err
	}
	if err := lvm.CheckNoNewMissingPV(g); err != nil {
		return err
	}
	if r, err = h.settleLocked(ctx, g, r); err != nil {
		return err
	}
	path, active, err := h.engine.FindDevice(ctx, id, uuid)
	if err == nil && active {
		err = h.engine.Machine.Kernel.CheckUnused(ctx, path)
	}
	if err != nil {
		return lvm.Errorf(lvm.KindOf(err), "%s/%s, a snapshot for a move, cannot be removed: %w", g.Name, id.LV, err)
	}
	if s, err = h.engine.ReadDisks(ctx); err != nil {
		return err
	}
	return h.engine.Remove(ctx, s, id, uuid, r.State)
}

// DropUnneededRounds removes the rounds that no move needs any more, and those that a failed command left unfinished. It starts no process if there are
// none.
func (h *Host) DropUnneededRounds(ctx context.Context) error {
	s, err := h.engine.ReadState(ctx)
	if err != nil {
		return err
	}
	var failures []error
	for _, g := range s.Groups {
		for _, r := range g.Rounds(h.engine.Config.Cluster) {
			switch {
			case !g.NeedsRound(r):
				failures = append(failures, h.DropRound(ctx, r.ID, r.UUID))
			case r.State == lvm.StateCreating && !h.operations.Has(r.ID.LV):
				failures = append(failures, h.dropUnfinishedRound(ctx, r.ID, r.UUID))
			}
		}
	}
	return errors.Join(failures...)
}

// recoverRound removes a round that no move needs, or that never became ready, and ends an interrupted comparison.
func (h *Host) recoverRound(ctx context.Context, r lvm.Round) error {
	s, err := h.engine.ReadDisks(ctx)
	if err != nil {
		return err
	}
	g, now, there, err := findRound(s, r.ID, r.UUID)
	switch {
	case err != nil || !there:
		return err
	case !g.NeedsRound(now) || now.State == lvm.StateCreating && !h.operations.Has(r.ID.LV):
		return h.DropRound(ctx, r.ID, r.UUID)
	case now.State == lvm.StateComparing:
		if err := h.lockComparing(ctx); err != nil {
			return err
		}
		defer h.unlockComparing()
		return h.settleRound(ctx, r.ID, r.UUID, false)
	}
	return nil
}

// findRound finds a round by its logical volume; there is false if its readable group lacks it.
func findRound(s lvm.State, id lvm.ID, uuid string) (g lvm.Group, r lvm.Round, there bool, err error) {
	if g, err = s.FindGroup(id.VG); err == nil {
		r, err = g.FindRound(id, uuid)
	}
	if lvm.KindOf(err) == lvm.KindNotFound {
		return g, r, false, nil
	}
	return g, r, err == nil, err
}

// roundOf finds the round of a volume with this name.
func roundOf(g lvm.Group, v lvm.Volume, move string) (lvm.Round, bool) {
	rounds := g.Rounds(v.Cluster)
	i := slices.IndexFunc(rounds, func(r lvm.Round) bool {
		return r.Move == move && r.Source == v.ID && r.SourceUUID == v.UUID && r.State != lvm.StateCreating
	})
	if i < 0 {
		return lvm.Round{}, false
	}
	return rounds[i], true
}

// activateRound returns a round's device, and activates it if necessary.
func (h *Host) activateRound(ctx context.Context, r lvm.Round) (string, error) {
	path, active, err := h.engine.FindDevice(ctx, r.ID, r.UUID)
	if err != nil || active {
		return path, err
	}
	s, unlock, err := h.engine.Locked(ctx, r.ID.VG, "activating "+r.ID.LV, h.engine.ReadState)
	if err != nil {
		return "", err
	}
	defer unlock()
	g, err := s.FindGroup(r.ID.VG)
	if err != nil {
		return "", err
	}
	return h.activateRoundLocked(ctx, g, r)
}

// activateRoundLocked does the same under the group's lock.
func (h *Host) activateRoundLocked(ctx context.Context, g lvm.Group, r lvm.Round) (string, error) {
	if path, active, err := h.engine.FindDevice(ctx, r.ID, r.UUID); err != nil || active {
		return path, err
	}
	lv := g.FindLV(r.ID.LV)
	if lv == nil || lv.UUID != r.UUID {
		return "", g.AbsentError("%s/%s, a snapshot for a move, was removed", g.Name, r.ID.LV)
	}
	if err := engine.CheckPresent(g, *lv, "activated"); err != nil {
		return "", err
	}
	t, err := lvmcmd.TargetOf(g.Name, r.ID.LV)
	if err != nil {
		return "", err
	}
	failure := h.engine.Run(ctx, g, []lvmcmd.Step{{Argv: lvmcmd.ActivateArgs(g, t)}})
	path, active, err := h.engine.FindDevice(ctx, r.ID, r.UUID)
	if err == nil && !active {
		err = lvm.Errorf(lvm.KindOf(failure), "cannot activate %s, a snapshot for a move: %w", t, engine.OrNoEffect(failure))
	}
	return path, err
}
