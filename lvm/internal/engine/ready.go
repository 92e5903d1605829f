package engine

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// untaggedVolumes are the volumes that requests got while their state on the disks is still "creating"; ReadyTags tags them.
type untaggedVolumes struct {
	mu      sync.Mutex
	groups  map[lvm.VGUUID]map[string]lvm.Volume // by the group's UUID, then by the volume's
	workers map[lvm.VGUUID]bool                  // groups that have a worker
}

// Has reports whether a request got the volume before its ready tag.
func (s *untaggedVolumes) Has(group lvm.VGUUID, uuid string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, there := s.groups[group][uuid]
	return there
}

// of lists a group's volumes that need the ready tag.
func (s *untaggedVolumes) of(group lvm.VGUUID) []lvm.Volume {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []lvm.Volume
	for _, v := range s.groups[group] {
		all = append(all, v)
	}
	return all
}

// drop forgets volumes whose state on the disks is now up to date.
func (s *untaggedVolumes) drop(group lvm.VGUUID, uuids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, uuid := range uuids {
		delete(s.groups[group], uuid)
	}
	if len(s.groups[group]) == 0 {
		delete(s.groups, group)
	}
}

// add adds a volume. It reports whether the group needs a worker, and records that it has one.
func (s *untaggedVolumes) add(v lvm.Volume) (startWorker bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	group := v.ID.VG
	if s.groups == nil {
		s.groups = map[lvm.VGUUID]map[string]lvm.Volume{}
	}
	if s.groups[group] == nil {
		s.groups[group] = map[string]lvm.Volume{}
	}
	s.groups[group][v.UUID] = v
	if s.workers == nil {
		s.workers = map[lvm.VGUUID]bool{}
	}
	needed := !s.workers[group]
	s.workers[group] = true
	return needed
}

// stopWorker reports whether a group's worker may stop, and records that it has.
func (s *untaggedVolumes) stopWorker(group lvm.VGUUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.groups[group]) > 0 {
		return false
	}
	delete(s.workers, group)
	return true
}

// withReady sets the state ready for volumes that requests got: for all but a starting driver they are ready.
func (s *untaggedVolumes) withReady(state lvm.State) lvm.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.groups) == 0 {
		return state
	}
	state.Groups = slices.Clone(state.Groups)
	for i := range state.Groups {
		g := &state.Groups[i]
		untagged := s.groups[g.UUID]
		if len(untagged) == 0 {
			continue
		}
		g.LVs = slices.Clone(g.LVs)
		for j := range g.LVs {
			v, is := g.LVs[j].AsVolume()
			if _, got := untagged[v.UUID]; is && got && v.State == lvm.StateCreating {
				v.State = lvm.StateReady
				g.LVs[j].Managed = lvm.ManagedVolumeOf(v)
			}
		}
	}
	return state
}

// groupsWaiting lists the UUIDs of the groups with such volumes.
func (s *untaggedVolumes) groupsWaiting() []lvm.VGUUID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.groups))
}

// OnDisk returns the volume with its state on the disks, which the selectors of commands must name. The caller holds the
// group's lock.
func (e *Engine) OnDisk(v lvm.Volume) lvm.Volume {
	if v.State == lvm.StateReady && e.Untagged.Has(v.ID.VG, v.UUID) {
		v.State = lvm.StateCreating
	}
	return v
}

// ReadyTags tags the volumes that requests got while their state on the disks is still "creating". One commit tags many of them as
// ready, once no other change waits for their group, or as soon as one of them is staged. A new volume then costs one LVM
// process before its answer and only a share of one after it. No pod has used such a volume, because Activate tags it first. If
// the driver stops before, the next one blanks the volume's beginning again and tags it (CompleteVolume).
type ReadyTags struct {
	engine     *Engine
	tasks      *oplock.Tasks
	delay      time.Duration   // before a worker's first attempt
	operations oplock.InFlight // by group's UUID: a commit of ready tags that pods wait for
}

func NewReadyTags(e *Engine, tasks *oplock.Tasks) *ReadyTags {
	return &ReadyTags{engine: e, tasks: tasks, delay: cmp.Or(e.Config.ReadyDelay, time.Second)}
}

// lastPause bounds the pause, which doubles, before the next attempt to tag volumes as ready.
const lastPause = 5 * time.Minute

// readyTimeLimit is how many pauses volumes that no pod stages wait for the end of a burst, after which one command tags them.
// It limits the work after a restart: the next driver blanks the beginning of each volume that is not tagged.
const readyTimeLimit = 30

// TagLater adds a volume that Create is about to return. The caller holds the group's lock.
func (b *ReadyTags) TagLater(v lvm.Volume) {
	if b.engine.Untagged.add(v) {
		b.tasks.Fork(func(ctx context.Context) { b.work(ctx, v.ID.VG) })
	}
}

// work is a group's worker. It ends when no volume is left, or when the driver stops: Host.Close tags the rest.
func (b *ReadyTags) work(ctx context.Context, group lvm.VGUUID) {
	pause := b.delay
	for !b.engine.Untagged.stopWorker(group) {
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
func (b *ReadyTags) TagFor(ctx context.Context, group lvm.VGUUID, uuid string) error {
	for b.engine.Untagged.Has(group, uuid) {
		_, err := oplock.Do(ctx, &b.operations, string(group), nil, func(ctx context.Context) (struct{}, error) {
			s, unlock, err := b.engine.lockedFirst(ctx, group, "tagging new volumes as ready", owedByMarking, b.engine.ReadDisks)
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
func (b *ReadyTags) tagGroup(ctx context.Context, group lvm.VGUUID, lock func(ctx context.Context, uuid lvm.VGUUID, what string) (func(), error)) error {
	if len(b.engine.Untagged.of(group)) == 0 {
		return nil
	}
	unlock, err := lock(ctx, group, "tagging new volumes as ready")
	if err != nil {
		return err
	}
	defer unlock()
	if len(b.engine.Untagged.of(group)) == 0 {
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
func (b *ReadyTags) TagLocked(ctx context.Context, g lvm.Group, also ...lvm.Volume) error {
	volumes, unmarked := b.writeMarks(ctx, g, append(b.engine.Untagged.of(g.UUID), also...))
	if len(volumes) == 0 {
		return unmarked
	}
	return errors.Join(unmarked, b.tag(ctx, g, volumes))
}

// writeMarks writes the format marks of volumes, and returns those that can be tagged. The error joins the others'. One that was removed
// meanwhile needs no mark.
func (b *ReadyTags) writeMarks(ctx context.Context, g lvm.Group, volumes []lvm.Volume) (marked []lvm.Volume, err error) {
	for _, v := range volumes {
		var failure error
		if g.LVByUUID(v.UUID) != nil {
			failure = b.engine.writeFormatMark(ctx, g, v)
		}
		if failure == nil {
			marked = append(marked, v)
		}
		err = errors.Join(err, failure)
	}
	return marked, err
}

func (b *ReadyTags) tag(ctx context.Context, g lvm.Group, volumes []lvm.Volume) error {
	steps, err := lvmcmd.ReadyArgs(g, volumes)
	if err != nil {
		return err
	}
	done, err := b.engine.Commit(ctx, Change{Group: g, Steps: steps})
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
		lv := g.LVByUUID(v.UUID)
		if lv != nil && isCreating(*lv) || lv == nil && g.IncompleteReason() != "" {
			open = append(open, v.ID.LV)
		} else {
			settled = append(settled, v.UUID)
		}
	}
	b.engine.Untagged.drop(g.UUID, settled...)
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
func (b *ReadyTags) TagRest(ctx context.Context) error {
	return oplock.EachAtOnce(b.engine.Untagged.groupsWaiting(), func(group lvm.VGUUID) error { return b.tagGroup(ctx, group, b.engine.Locks.Acquire) })
}
