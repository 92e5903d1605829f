package recovery

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/groupsnap"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
	"github.com/nodelvm/nodelvm/lvm/internal/wipe"
)

// startPatience is how long start waits for recovery, which then continues in the background. What cannot be recovered yet is
// retried after a pause that doubles from firstPause up to lastPause.
const (
	startPatience = 30 * time.Second
	firstPause    = time.Second
	lastPause     = 5 * time.Minute
)

// Recovery completes or undoes what an interruption left in the volume groups.
type Recovery struct {
	engine    *engine.Engine
	tasks     *oplock.Tasks
	wiper     *wipe.Wiper
	snapshots *groupsnap.Maker
	rounds    func(ctx context.Context, r lvm.Round) error // recovers a round
	inFlight  func(lv string) bool                         // reports whether a request works on a volume
}

// New returns the recovery of an engine's groups; rounds recovers a round of a move, and inFlight reports whether a request works on a volume.
func New(e *engine.Engine, tasks *oplock.Tasks, w *wipe.Wiper, snapshots *groupsnap.Maker, rounds func(ctx context.Context, r lvm.Round) error, inFlight func(lv string) bool) *Recovery {
	return &Recovery{e, tasks, w, snapshots, rounds, inFlight}
}

// Start recovers the groups of the first read, and from now on each group that appears. It returns when each has been tried once,
// or recovery takes too long.
func (r *Recovery) Start(ctx context.Context, s lvm.State) {
	r.engine.LastRead.Begin(s)
	var tried sync.WaitGroup
	for _, g := range r.engine.LastRead.Collect() {
		tried.Add(1)
		r.tasks.Fork(func(ctx context.Context) { r.whenPossible(ctx, g, tried.Done, r.recoverGroup) })
	}
	r.tasks.Start(r.recoverArrivals)
	r.awaitFirst(ctx, &tried)
}

// awaitFirst waits for the first attempt at each group, but not too long.
func (r *Recovery) awaitFirst(ctx context.Context, tried *sync.WaitGroup) {
	waiting, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if oplock.Await(waiting, tried) != nil {
		r.engine.Log.Warn("recovery is slow; continuing in the background")
	}
}

// recoverArrivals recovers each group that appears after the start, until ctx ends. Reads only note such a group.
func (r *Recovery) recoverArrivals(ctx context.Context) {
	for {
		groups, err := r.engine.LastRead.Next(ctx)
		if err != nil {
			return
		}
		for _, g := range groups {
			r.tasks.Start(func(ctx context.Context) { r.whenPossible(ctx, g, func() {}, r.recoverGroup) })
		}
	}
}

// whenPossible calls do for one group, as soon as that is possible, until it succeeds; it calls tried after the first attempt. A
// group that disappears is new when it returns.
func (r *Recovery) whenPossible(ctx context.Context, g lvm.Group, tried func(), do func(context.Context, lvm.Group) error) {
	tried = sync.OnceFunc(tried)
	defer tried()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		now, err := r.afterFormerCommands(ctx, g)
		if lvm.KindOf(err) == lvm.KindNotLocal {
			return
		}
		if err == nil {
			err = do(ctx, now)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		r.engine.Log.Warn("cannot recover a volume group yet; the driver retries", "vg", g.Name, "pause", pause, "error", err)
		tried()
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// recoverGroup recovers one group; the error joins those of the volumes that are still unfinished or suspended. It resumes suspended
// devices first: I/O to them waits.
func (r *Recovery) recoverGroup(ctx context.Context, g lvm.Group) (unfinished error) {
	if why := r.engine.OtherNodeReason(g); why != "" {
		r.engine.Log.Warn("ignoring a volume group", "vg", g.Name, "reason", why)
		return nil
	}
	unfinished = errors.Join(r.resume(ctx, g, r.engine.Config.Cluster), r.mapPresentDisks(ctx, g))
	for _, lv := range g.LVs {
		if sn, is := lv.AsSnapshot(); is && sn.Cluster == r.engine.Config.Cluster && sn.State != lvm.StateReady {
			unfinished = errors.Join(unfinished, r.recoverSnapshot(ctx, sn))
		}
		if round, is := lv.AsRound(); is && round.Cluster == r.engine.Config.Cluster {
			unfinished = errors.Join(unfinished, r.rounds(ctx, round))
		}
		v, is := lv.AsVolume()
		if !is || v.Cluster != r.engine.Config.Cluster {
			continue
		}
		switch v.State {
		case lvm.StateCreating, lvm.StateZeroing:
			unfinished = errors.Join(unfinished, r.recoverVolume(ctx, v))
		case lvm.StateDeleting:
			r.wiper.Wipe(v)
		case lvm.StateReady, lvm.StateMoving, lvm.StateMoved, lvm.StateReceiving, lvm.StateReceived, lvm.StateComparing: // the agent continues a move
		}
	}
	r.flushPools(ctx, g)
	return unfinished
}

// afterFormerCommands waits until no command of an earlier driver works on the group, then reads and flushes it: that driver
// may have been killed between a commit and its flush, and a repeated request relies on the commit.
func (r *Recovery) afterFormerCommands(ctx context.Context, g lvm.Group) (lvm.Group, error) {
	unlock, err := r.engine.Locks.Acquire(ctx, g.UUID, "waiting for the commands of an earlier driver process")
	if err != nil {
		return lvm.Group{}, err
	}
	defer unlock()
	if err := r.engine.Commands.Acquire(ctx, g.Name); err != nil {
		return lvm.Group{}, err
	}
	s, err := r.engine.ReadDisks(ctx)
	if err != nil {
		return lvm.Group{}, err
	}
	if g, err = s.FindGroup(g.UUID); err != nil {
		return lvm.Group{}, err
	}
	if err := lvm.CheckResponsive(g); err != nil {
		return lvm.Group{}, err
	}
	if err := r.engine.Flush(g); err != nil {
		r.engine.Log.Warn("cannot flush the changes of an earlier driver process", "vg", g.Name, "error", err)
	}
	return g, nil
}

// recoverVolume completes a volume in the state creating or zeroing, or removes it if it is incomplete.
func (r *Recovery) recoverVolume(ctx context.Context, v lvm.Volume) error {
	s, unlock, err := r.engine.Locked(ctx, v.ID.VG, "recovering volume "+v.ID.LV, r.engine.ReadDisks)
	if err != nil {
		return err
	}
	defer unlock()
	g, lv, now, err := s.FindVolume(v.ID)
	switch {
	case lvm.KindOf(err) == lvm.KindNotFound:
		return nil
	case err != nil:
		return err
	case now.UUID != v.UUID || now.State != v.State || r.engine.Untagged.Has(v.ID.VG, v.UUID) || now.State == lvm.StateZeroing && r.inFlight(v.ID.LV):
		return nil // a request works on it
	case alloc.Complete(g, lv, now):
		_, err := r.engine.CompleteVolume(ctx, s, now)
		return err
	}
	if err := lvm.CheckNoNewMissingPV(g); err != nil { // the missing disk may have newer metadata of the volume
		return err
	}
	return r.engine.Remove(ctx, s, now.ID, now.UUID, now.State)
}

// recoverSnapshot removes a snapshot that no request got, and a group snapshot whose creation or deletion was interrupted.
func (r *Recovery) recoverSnapshot(ctx context.Context, sn lvm.Snapshot) error {
	switch {
	case sn.Member.IsFirst():
		return r.snapshots.RemoveUnfinished(ctx, sn)
	case sn.State == lvm.StateCreating:
		return r.removeUnfinished(ctx, sn.ID, sn.UUID)
	}
	return nil
}

// removeUnfinished removes a snapshot that no request got.
func (r *Recovery) removeUnfinished(ctx context.Context, id lvm.ID, uuid string) error {
	s, unlock, err := r.engine.Locked(ctx, id.VG, "removing the unfinished snapshot "+id.LV, r.engine.ReadDisks)
	if err != nil {
		return err
	}
	defer unlock()
	g, now, err := s.FindSnapshot(id)
	switch {
	case lvm.KindOf(err) == lvm.KindNotFound:
		return nil
	case err != nil:
		return err
	case now.UUID != uuid || now.State != lvm.StateCreating:
		return nil // a request created it again
	}
	if err := lvm.CheckNoNewMissingPV(g); err != nil {
		return err
	}
	return r.engine.Remove(ctx, s, id, uuid, lvm.StateCreating)
}

// flushPools flushes the pools of a group at start.
func (r *Recovery) flushPools(ctx context.Context, g lvm.Group) {
	if !slices.ContainsFunc(g.LVs, engine.Unflushed) {
		return
	}
	s, unlock, err := r.engine.Locked(ctx, g.UUID, "flushing thin pool messages", r.engine.ReadDisks)
	if err != nil {
		return // the group disappeared, or the driver stops
	}
	defer unlock()
	if g, err = s.FindGroup(g.UUID); err != nil || lvm.CheckWritable(s, g) != nil {
		return
	}
	for _, pool := range g.LVs {
		if !engine.Unflushed(pool) {
			continue
		}
		if g, err = r.engine.FlushPool(ctx, g, pool); err != nil && ctx.Err() == nil {
			r.engine.Log.Warn("cannot flush the messages that an interrupted command left for a thin pool; the driver retries before it removes a volume of the pool", "error", err)
		}
	}
}

// mapPresentDisks makes this cluster's active volumes of a group map the disks that were removed and are back. The error joins those
// of the volumes; a volume in use that is no RAID is none: its next activation does it.
func (r *Recovery) mapPresentDisks(ctx context.Context, g lvm.Group) (failures error) {
	for lv, v := range g.Volumes() {
		if v.Cluster != r.engine.Config.Cluster || v.State != lvm.StateReady {
			continue
		}
		path, active, err := r.engine.FindDevice(ctx, v.ID, v.UUID)
		if err != nil || !active {
			continue
		}
		if pvs, _, err := r.engine.UnmappedPVs(g, lv, path); err != nil || len(pvs) == 0 {
			continue
		}
		if err := r.engine.MapPresentDisks(ctx, v.ID); err != nil {
			r.engine.Log.Error("cannot make a volume map its disk again, which was removed and is back", "volume", v.ID.String(), "error", err)
			failures = errors.Join(failures, err)
		}
	}
	return failures
}
