// Package ready tags new volumes as ready: many with one commit.
package ready

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// Batcher tags the volumes that requests got while their state on the disks is still "creating". One commit tags many of them as
// ready, once no other change waits for their group, or as soon as one of them is staged. A new volume then costs one LVM
// process before its answer and only a share of one after it. No pod has used such a volume, because Activate tags it first. If
// the driver stops before, the next one blanks the volume's beginning again and tags it (CompleteVolume).
type Batcher struct {
	engine     *engine.Engine
	tasks      *oplock.Tasks
	delay      time.Duration   // before a worker's first attempt
	operations oplock.InFlight // by group's UUID: a commit of ready tags that pods wait for
}

func New(e *engine.Engine, tasks *oplock.Tasks) *Batcher {
	return &Batcher{engine: e, tasks: tasks, delay: cmp.Or(e.Config.ReadyDelay, time.Second)}
}

// lastPause bounds the pause, which doubles, before the next attempt to tag volumes as ready.
const lastPause = 5 * time.Minute

// readyTimeLimit is how many pauses volumes that no pod stages wait for the end of a burst, after which one command tags them.
// It limits the work after a restart: the next driver blanks the beginning of each volume that is not tagged.
const readyTimeLimit = 30

// TagLater adds a volume that Create is about to return. The caller holds the group's lock.
func (b *Batcher) TagLater(v lvm.Volume) {
	if b.engine.Untagged.Add(v) {
		b.tasks.Fork(func(ctx context.Context) { b.work(ctx, v.ID.VG) })
	}
}

// work is a group's worker. It ends when no volume is left, or when the driver stops: Host.Close tags the rest.
func (b *Batcher) work(ctx context.Context, group lvm.VGUUID) {
	pause := b.delay
	for !b.engine.Untagged.StopWorker(group) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		err := b.tagGroup(ctx, group, func(ctx context.Context, uuid lvm.VGUUID, what string) (func(), error) {
			return b.engine.Locks.AcquireLast(ctx, uuid, what, readyTimeLimit*b.delay)
		})
		if err == nil {
			pause = b.delay
			continue
		}
		pause = min(2*pause, lastPause)
		if ctx.Err() == nil {
			b.engine.Log.Warn("cannot tag new volumes as ready; the driver retries, at the latest when a pod uses them", "vg", b.engine.LastRead.Name(group), "vg_uuid", group, "pause", pause, "error", err)
		}
	}
}

// TagFor tags a volume that a pod waits for, with all others of its group; concurrent callers share one command. Each
// volume was added under the group's lock, so the next holder of the lock tags them all.
func (b *Batcher) TagFor(ctx context.Context, group lvm.VGUUID, uuid string) error {
	for b.engine.Untagged.Has(group, uuid) {
		_, err := oplock.Do(ctx, &b.operations, string(group), nil, func(ctx context.Context) (struct{}, error) {
			s, unlock, err := b.engine.LockedFirst(ctx, group, "tagging new volumes as ready", engine.OwedByMarking, b.engine.ReadDisks)
			if err != nil {
				return struct{}{}, err
			}
			defer unlock()
			g, err := s.FindGroup(group)
			if err != nil {
				return struct{}{}, err
			}
			return struct{}{}, b.TagLocked(ctx, g)
		})
		if err != nil && b.engine.Untagged.Has(group, uuid) {
			return err
		}
	}
	return nil
}

// tagGroup tags all volumes of a group that wait for it. No request needs that now, so it changes no group with a missing
// disk.
func (b *Batcher) tagGroup(ctx context.Context, group lvm.VGUUID, lock func(ctx context.Context, uuid lvm.VGUUID, what string) (func(), error)) error {
	if len(b.engine.Untagged.Of(group)) == 0 {
		return nil
	}
	unlock, err := lock(ctx, group, "tagging new volumes as ready")
	if err != nil {
		return err
	}
	defer unlock()
	if len(b.engine.Untagged.Of(group)) == 0 {
		return nil // another caller tagged them
	}
	s, err := b.engine.ReadDisks(ctx)
	if err != nil {
		return err
	}
	g, err := s.FindGroup(group)
	if err != nil {
		return err
	}
	if err := lvm.CheckNoNewMissingPV(g); err != nil {
		return err
	}
	return b.TagLocked(ctx, g)
}

// TagLocked tags the volumes, and optionally a new snapshot, under the group's lock. It first writes their format marks. It forgets those
// that are ready or removed afterwards, and returns an error if any is not.
func (b *Batcher) TagLocked(ctx context.Context, g lvm.Group, also ...lvm.Volume) error {
	volumes, unmarked := b.writeMarks(ctx, g, append(b.engine.Untagged.Of(g.UUID), also...))
	if len(volumes) == 0 {
		return unmarked
	}
	return errors.Join(unmarked, b.tag(ctx, g, volumes))
}

// writeMarks writes the format marks of volumes, and returns those that can be tagged. The error joins the others'. One that was removed
// meanwhile needs no mark.
func (b *Batcher) writeMarks(ctx context.Context, g lvm.Group, volumes []lvm.Volume) (marked []lvm.Volume, err error) {
	for _, v := range volumes {
		var failure error
		if slices.ContainsFunc(g.LVs, func(lv lvm.LV) bool { return lv.UUID == v.UUID }) {
			failure = b.engine.WriteFormatMark(ctx, g, v)
		}
		if failure == nil {
			marked = append(marked, v)
		}
		err = errors.Join(err, failure)
	}
	return marked, err
}

func (b *Batcher) tag(ctx context.Context, g lvm.Group, volumes []lvm.Volume) error {
	steps, err := lvmcmd.ReadyArgs(g, volumes)
	if err != nil {
		return err
	}
	done, err := b.engine.Commit(ctx, engine.Change{Group: g, Steps: steps})
	if err != nil {
		return err
	}
	if g, err = done.Group(); err != nil {
		return err
	}
	if err := b.engine.Flush(g); err != nil {
		return err
	}
	var settled, open []string
	for _, v := range volumes {
		i := slices.IndexFunc(g.LVs, func(lv lvm.LV) bool { return lv.UUID == v.UUID })
		if i >= 0 && isCreating(g.LVs[i]) || i < 0 && g.IncompleteReason() != "" {
			open = append(open, v.ID.LV)
		} else {
			settled = append(settled, v.UUID)
		}
	}
	b.engine.Untagged.Drop(g.UUID, settled...)
	if len(open) > 0 {
		return lvm.Errorf(lvm.KindOf(done.Failure), "volume group %s: cannot tag %q as ready: %w", g.Name, open, done.Cause())
	}
	return nil
}

func isCreating(lv lvm.LV) bool {
	v, _ := lv.AsVolume()
	sn, _ := lv.AsSnapshot()
	return v.State == lvm.StateCreating || sn.State == lvm.StateCreating
}

// TagRest tags what waits in all groups, concurrently.
func (b *Batcher) TagRest(ctx context.Context) error {
	return oplock.EachAtOnce(b.engine.Untagged.GroupsWaiting(), func(group lvm.VGUUID) error { return b.tagGroup(ctx, group, b.engine.Locks.Acquire) })
}
