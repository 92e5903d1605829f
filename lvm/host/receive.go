package host

import (
	"cmp"
	"context"
	"fmt"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// Receive creates a volume in the state receiving for a move, or finds it. What another move copied into it counts no more, but for the round that
// in.Since names, if the volume has it completely. No pod can use it before
// Finish. KindExists: another volume has its name, or a complete copy from another move; KindInsufficientCapacity, KindInvalid,
// KindOutOfRange, KindBusy: as Create.
func (h *Host) Receive(ctx context.Context, in lvm.Incoming) (lvm.Volume, error) {
	return oplock.Do(ctx, &h.operations, lvm.LVName(in.Spec.Name), in, func(ctx context.Context) (lvm.Volume, error) {
		return planAgain(fmt.Sprintf("volume %q", in.Spec.Name), func() (lvm.Volume, error) { return h.receive(ctx, in) })
	})
}

func (h *Host) receive(ctx context.Context, in lvm.Incoming) (lvm.Volume, error) {
	_, first, err := h.planReceive(ctx, in)
	if err != nil {
		return lvm.Volume{}, err
	}
	group := alloc.ReceptionGroup(first)
	unlock, err := h.engine.Locks.Acquire(ctx, group, "receiving volume "+in.Spec.Name)
	if err != nil {
		return lvm.Volume{}, err
	}
	defer unlock()
	s, r, err := h.planReceive(ctx, in)
	switch {
	case err != nil:
		return lvm.Volume{}, err
	case alloc.ReceptionGroup(r) != group:
		return lvm.Volume{}, errChanged
	case r.Have != nil:
		g, err := s.FindGroup(group)
		if err == nil {
			err = h.engine.Flush(g)
		}
		return *r.Have, err
	case r.Begin != nil:
		_, lv, v, err := s.FindVolume(r.Begin.ID)
		if err != nil {
			return lvm.Volume{}, err
		}
		next := v
		next.Move, next.Copied, next.Base = r.Begin.Move, r.Begin.Copied, r.Begin.Base
		return h.engine.ChangeMove(ctx, s, lv, v, next)
	case r.Leftover != nil:
		if err := h.engine.Remove(ctx, s, r.Leftover.ID, r.Leftover.UUID, r.Leftover.State); err != nil {
			return lvm.Volume{}, err
		}
		return lvm.Volume{}, errChanged
	case r.Former != nil:
		g, lv, v, err := s.FindVolume(r.Former.ID)
		if err == nil {
			err = h.deleteLocked(ctx, s, g, lv, v)
		}
		return lvm.Volume{}, cmp.Or(err, errChanged)
	}
	return h.allocateReceiving(ctx, in, r.Create)
}

func (h *Host) planReceive(ctx context.Context, in lvm.Incoming) (lvm.State, alloc.Reception, error) {
	s, err := h.engine.ReadState(ctx)
	if err != nil {
		return lvm.State{}, alloc.Reception{}, err
	}
	r, err := alloc.PlanReceive(h.reserved.ApplyFor(s, in.Spec.Class.Layout, in.Spec), h.engine.Config.Cluster, in)
	return s, r, err
}

// allocateReceiving runs lvcreate. What a failed one left is removed, now or by the next Receive or Discard.
func (h *Host) allocateReceiving(ctx context.Context, in lvm.Incoming, c *alloc.Allocation) (lvm.Volume, error) {
	steps, err := lvmcmd.CreateSteps(c)
	if err != nil {
		return lvm.Volume{}, err
	}
	if err := h.engine.CheckTransaction(c.Group, c.Volume.Class.Pool); err != nil {
		return lvm.Volume{}, err
	}
	done, err := h.engine.Commit(ctx, engine.Change{Group: c.Group, Steps: steps, Legs: c.Group.ComponentsByName(c.Volume.Class.Pool)})
	if err != nil {
		return lvm.Volume{}, err
	}
	g, _, v, err := done.State.FindVolume(c.Volume.ID)
	if err == nil && done.Failure == nil {
		h.reserved.Drop(in.Spec)
		if err = lvm.CheckWritable(done.State, g); err == nil {
			err = h.engine.Flush(g)
		}
		return v, err
	}
	h.engine.NoteFailure(c.Volume.Class)
	if err == nil {
		if left := h.engine.Remove(ctx, done.State, v.ID, v.UUID, v.State); left != nil {
			h.log.Warn("cannot remove what a failed command left of a volume that moves here; the next attempt retries", "volume", v.ID.String(), "error", left)
		}
	}
	return lvm.Volume{}, lvm.Errorf(lvm.KindInternal, "cannot create volume %q with %s in volume group %s for its move here: %w", in.Spec.Name, c.Volume.Size, c.Group.Name, done.Cause())
}
