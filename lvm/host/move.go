package host

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// The steps of a move between nodes; package move calls them. Each is one commit and can be repeated: what it would do is decided from the
// tags on the disks. KindNotFound, KindNotLocal, KindNotManaged: the volume, as for Delete; KindConflict: its state does not allow the step.

// moveStep identifies a step of a move among the operations in flight.
type moveStep struct {
	name   string
	id     lvm.ID
	uuid   string
	move   string
	copied lvm.Bytes
	record string
}

// located is a volume as read under its group's lock.
type located struct {
	s  lvm.State
	g  lvm.Group
	lv lvm.LV
	v  lvm.Volume
}

// Hold tags a ready volume as moving. A moving one stays so, with its own move. KindInUse: its device is open or about to be, or bound at a
// pod's path; KindInvalid: it is a read-only copy.
func (h *Host) Hold(ctx context.Context, id lvm.ID, uuid, move string) (lvm.Volume, error) {
	if err := lvm.CheckMove(move); err != nil {
		return lvm.Volume{}, err
	}
	if h.engine.Untagged.Has(id.VG, uuid) {
		if err := h.ready.TagFor(ctx, id.VG, uuid); err != nil {
			return lvm.Volume{}, err
		}
	}
	r := moveStep{name: "held for its move", id: id, uuid: uuid, move: move}
	return oplock.Do(ctx, &h.operations, id.LV, r, func(ctx context.Context) (lvm.Volume, error) {
		held := func() {}
		defer func() { held() }()
		return h.takeStep(ctx, r, func(ctx context.Context, at located) (lvm.Volume, error) {
			next := at.v
			switch at.v.State {
			case lvm.StateMoving:
				return next, nil
			case lvm.StateReady:
				next.State, next.Move = lvm.StateMoving, move
				end, ok := h.openings.Begin(uuid, holding)
				if held = end; !ok {
					return next, lvm.Errorf(lvm.KindInUse, "volume %s/%s cannot be moved: it is being staged for a pod", at.v.Group, id.LV)
				}
				return next, h.checkMovable(ctx, at)
			default:
				return next, stepRefused(at.v, "held for its move")
			}
		})
	})
}

// checkMovable refuses a volume that something can write, or that cannot be read completely.
func (h *Host) checkMovable(ctx context.Context, at located) error {
	if at.v.Access.ReadOnly() {
		return lvm.Errorf(lvm.KindInvalid, "volume %s/%s cannot be moved: it is %s", at.v.Group, at.v.ID.LV, at.v.Access.Description())
	}
	if err := h.engine.CloseUnused(ctx, at.v, "moved"); err != nil {
		return err
	}
	if err := h.engine.CheckUnused(ctx, at.g, at.lv, at.v, "moved"); err != nil {
		return err
	}
	return engine.CheckPresent(at.g, at.lv, "moved")
}

// ReleaseHeld tags a moving volume as ready: its move is cancelled. Nil for a ready one.
func (h *Host) ReleaseHeld(ctx context.Context, id lvm.ID, uuid string) error {
	_, err := h.moveStep(ctx, moveStep{name: "released", id: id, uuid: uuid}, func(_ context.Context, at located) (lvm.Volume, error) {
		next := at.v
		if at.v.State != lvm.StateReady && at.v.State != lvm.StateMoving {
			return next, stepRefused(at.v, "released")
		}
		next.State = lvm.StateReady
		return next, nil
	})
	return err
}

// HandOver tags a moving volume as moved, if it is held for this move: from now on the copy on another node is the user's volume. Nil if it
// is moved for it. KindInUse: something opened it meanwhile, so the copy may be incomplete.
func (h *Host) HandOver(ctx context.Context, id lvm.ID, uuid, move string) error {
	_, err := h.moveStep(ctx, moveStep{name: "handed over", id: id, uuid: uuid, move: move}, func(ctx context.Context, at located) (lvm.Volume, error) {
		next := at.v
		switch {
		case at.v.Move != move || at.v.State != lvm.StateMoving && at.v.State != lvm.StateMoved:
			return next, stepRefused(at.v, "handed over for move "+move)
		case at.v.State == lvm.StateMoved:
			return next, nil
		}
		next.State = lvm.StateMoved
		return next, h.engine.CheckUnused(ctx, at.g, at.lv, at.v, "handed over")
	})
	if err == nil {
		h.deactivate(ctx, id, uuid)
	}
	return err
}

// deactivate deactivates a former copy, so that even what reads no tags cannot use its device.
func (h *Host) deactivate(ctx context.Context, id lvm.ID, uuid string) {
	s, unlock, err := h.engine.Locked(ctx, id.VG, "deactivating volume "+id.LV, h.engine.ReadState)
	if err != nil {
		return
	}
	defer unlock()
	g, _, v, err := s.FindVolume(id)
	if err != nil || v.UUID != uuid || v.State != lvm.StateMoved {
		return
	}
	if _, active, err := h.engine.FindDevice(ctx, id, uuid); err != nil || !active {
		return
	}
	t, err := lvmcmd.TargetOf(g.Name, id.LV)
	if err == nil {
		err = h.engine.Run(ctx, g, []lvmcmd.Step{{Argv: lvmcmd.DeactivateArgs(g, t)}})
	}
	if err != nil {
		h.log.Warn("cannot deactivate a volume that moved to another node; no pod can use it", "volume", id.String(), "error", err)
	}
}

// RemoveMoved deletes a moved volume, as Delete does.
func (h *Host) RemoveMoved(ctx context.Context, id lvm.ID, uuid string) error {
	return h.removeSide(ctx, moveStep{name: "removed", id: id, uuid: uuid}, lvm.StateMoved)
}

// Discard deletes a volume that was received in part, or completely and never finished.
func (h *Host) Discard(ctx context.Context, id lvm.ID, uuid string) error {
	return h.removeSide(ctx, moveStep{name: "discarded", id: id, uuid: uuid}, lvm.StateReceiving, lvm.StateReceived)
}

// removeSide deletes a volume in one of these states. Nil if the group lacks it, another volume has its name, or it is being deleted.
func (h *Host) removeSide(ctx context.Context, step moveStep, states ...lvm.VolumeState) error {
	_, err := oplock.Do(ctx, &h.operations, step.id.LV, step, func(ctx context.Context) (struct{}, error) {
		at, unlock, err := h.locate(ctx, step)
		if lvm.KindOf(err) == lvm.KindNotFound {
			return struct{}{}, nil
		}
		if err != nil {
			return struct{}{}, err
		}
		defer unlock()
		for _, state := range states {
			if at.v.State == state {
				return struct{}{}, h.deleteLocked(ctx, at.s, at.g, at.lv, at.v)
			}
		}
		if at.v.State == lvm.StateDeleting {
			h.wiper.Wipe(at.v)
			return struct{}{}, nil
		}
		return struct{}{}, stepRefused(at.v, step.name)
	})
	return err
}

// NoteCopied records how much of a receiving volume is complete, verified and flushed.
func (h *Host) NoteCopied(ctx context.Context, id lvm.ID, uuid, move string, copied lvm.Bytes) error {
	_, err := h.moveStep(ctx, moveStep{name: "continued", id: id, uuid: uuid, move: move, copied: copied}, func(_ context.Context, at located) (lvm.Volume, error) {
		next := at.v
		if at.v.State != lvm.StateReceiving || at.v.Move != move {
			return next, stepRefused(at.v, "continued for move "+move)
		}
		next.Copied = copied
		return next, nil
	})
	return err
}

// Received tags a receiving volume as received: its content is complete and flushed.
func (h *Host) Received(ctx context.Context, id lvm.ID, uuid, move string) (lvm.Volume, error) {
	return h.moveStep(ctx, moveStep{name: "received", id: id, uuid: uuid, move: move}, func(_ context.Context, at located) (lvm.Volume, error) {
		next := at.v
		if at.v.State != lvm.StateReceiving && at.v.State != lvm.StateReceived || at.v.Move != move {
			return next, stepRefused(at.v, "received for move "+move)
		}
		next.State, next.Copied, next.Base = lvm.StateReceived, 0, ""
		return next, nil
	})
}

// RoundReceived records that a receiving volume has the content of a round, verified and flushed.
func (h *Host) RoundReceived(ctx context.Context, id lvm.ID, uuid, move string) (lvm.Volume, error) {
	return h.moveStep(ctx, moveStep{name: "noted as having a round", id: id, uuid: uuid, move: move}, func(_ context.Context, at located) (lvm.Volume, error) {
		next := at.v
		if at.v.State != lvm.StateReceiving || at.v.Move != move {
			return next, stepRefused(at.v, "noted as having round "+move)
		}
		next.Copied, next.Base = 0, move
		return next, nil
	})
}

// Finish tags a received volume as ready: pods can use it. Returns a ready one as it is.
func (h *Host) Finish(ctx context.Context, id lvm.ID, uuid string) (lvm.Volume, error) {
	return h.moveStep(ctx, moveStep{name: "finished", id: id, uuid: uuid}, func(_ context.Context, at located) (lvm.Volume, error) {
		next := at.v
		if at.v.State != lvm.StateReceived && at.v.State != lvm.StateReady {
			return next, stepRefused(at.v, "finished")
		}
		next.State = lvm.StateReady
		return next, nil
	})
}

// NoteMove replaces a volume's Record; "": none. The volume is ready or a side of a move.
func (h *Host) NoteMove(ctx context.Context, id lvm.ID, uuid, record string) error {
	if len(record) > lvm.MaxRecord {
		return lvm.Errorf(lvm.KindInvalid, "the record of a move has %d bytes, and at most %d are possible", len(record), lvm.MaxRecord)
	}
	if h.engine.Untagged.Has(id.VG, uuid) {
		if err := h.ready.TagFor(ctx, id.VG, uuid); err != nil {
			return err
		}
	}
	_, err := h.moveStep(ctx, moveStep{name: "noted", id: id, uuid: uuid, record: record}, func(_ context.Context, at located) (lvm.Volume, error) {
		next := at.v
		if at.v.State != lvm.StateReady && !at.v.State.IsMove() {
			return next, stepRefused(at.v, "noted")
		}
		next.Record = record
		return next, alloc.CheckMetadata(at.g, 2*lvm.Bytes(len(record)-len(at.v.Record)))
	})
	return err
}

// MoveDevice returns the device of a volume that is held for this move, or receives its content, or that of its round with this name. It activates
// the device if necessary.
func (h *Host) MoveDevice(ctx context.Context, id lvm.ID, uuid, move string) (string, error) {
	step := moveStep{name: "opened", id: id, uuid: uuid, move: move}
	return oplock.Do(ctx, &h.operations, id.LV, step, func(ctx context.Context) (string, error) {
		s, err := h.engine.ReadState(ctx)
		if err != nil {
			return "", err
		}
		at, err := h.find(s, step)
		if err != nil {
			return "", err
		}
		if r, is := roundOf(at.g, at.v, move); is {
			return h.activateRound(ctx, r)
		}
		switch {
		case at.v.State != lvm.StateMoving && at.v.State != lvm.StateReceiving || at.v.Move != move:
			return "", stepRefused(at.v, "opened for move "+move)
		}
		return h.engine.EnsureActive(ctx, at.g, at.lv, at.v)
	})
}

// Moves lists this cluster's volumes that are ready or a side of a move. It starts no process.
func (h *Host) Moves(ctx context.Context) ([]lvm.Volume, error) {
	s, err := h.engine.ReadState(ctx)
	if err != nil {
		return nil, err
	}
	var all []lvm.Volume
	for _, v := range h.volumes(s) {
		if v.State == lvm.StateReady || v.State.IsMove() {
			all = append(all, v)
		}
	}
	return all, nil
}

// moveStep commits what step returns, unless the volume's tags say it already; then it flushes what an earlier process may have committed.
func (h *Host) moveStep(ctx context.Context, r moveStep, step func(context.Context, located) (lvm.Volume, error)) (lvm.Volume, error) {
	return oplock.Do(ctx, &h.operations, r.id.LV, r, func(ctx context.Context) (lvm.Volume, error) { return h.takeStep(ctx, r, step) })
}

func (h *Host) takeStep(ctx context.Context, r moveStep, step func(context.Context, located) (lvm.Volume, error)) (lvm.Volume, error) {
	at, unlock, err := h.locate(ctx, r)
	if err != nil {
		return lvm.Volume{}, err
	}
	defer unlock()
	next, err := step(ctx, at)
	switch {
	case err != nil:
		return lvm.Volume{}, err
	case next == at.v:
		return next, h.engine.Flush(at.g)
	}
	return h.engine.ChangeMove(ctx, at.s, at.lv, at.v, next)
}

// locate reads a volume of this cluster under its group's lock.
func (h *Host) locate(ctx context.Context, r moveStep) (at located, unlock func(), err error) {
	s, unlock, err := h.engine.Locked(ctx, r.id.VG, "moving volume "+r.id.LV, h.engine.ReadState)
	if err != nil {
		return located{}, nil, err
	}
	if at, err = h.find(s, r); err != nil {
		unlock()
		return located{}, nil, err
	}
	return at, unlock, nil
}

func (h *Host) find(s lvm.State, r moveStep) (located, error) {
	g, lv, v, err := s.FindVolume(r.id)
	switch {
	case err != nil:
		return located{}, err
	case v.Cluster != h.engine.Config.Cluster:
		return located{}, lvm.Errorf(lvm.KindNotManaged, "volume %s/%s belongs to the cluster %q, and only that cluster moves it (this one is %q)", g.Name, lv.Name, v.Cluster, h.engine.Config.Cluster)
	}
	return located{s, g, lv, v}, engine.CheckUUID(g, v, r.uuid)
}

func stepRefused(v lvm.Volume, what string) error {
	return lvm.Errorf(lvm.KindConflict, "volume %s/%s cannot be %s: its state is %q%s", v.Group, v.ID.LV, what, v.State, ofMove(v))
}

func ofMove(v lvm.Volume) string {
	if !v.State.IsMove() {
		return ""
	}
	return " of move " + v.Move
}
