package host

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// readyBatcher holds the volumes that requests got while their state on the disks is still "creating". One commit tags many of
// them as ready, once no other change waits for their group, or as soon as one of them is staged. A new volume then costs one
// LVM process before its answer and only a share of one after it. No pod has used such a volume, because Activate tags it
// first. If the driver stops before, the next one blanks the volume's beginning again and tags it (completeVolume).
type readyBatcher struct {
	mu      sync.Mutex
	groups  map[string]map[string]lvm.Volume // by the group's UUID, then by the volume's
	workers map[string]bool                  // groups that have a worker
}

// readyLastPause bounds the pause, which doubles, before the next attempt to tag volumes as ready.
const readyLastPause = 5 * time.Minute

// readyTimeLimit is how many pauses volumes that no pod stages wait for the end of a burst, after which one command tags them.
// It limits the work after a restart: the next driver blanks the beginning of each volume that is not tagged.
const readyTimeLimit = 30

// has reports whether a request got the volume before its ready tag.
func (s *readyBatcher) has(group, uuid string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, there := s.groups[group][uuid]
	return there
}

// of lists a group's volumes that need the ready tag.
func (s *readyBatcher) of(group string) []lvm.Volume {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []lvm.Volume
	for _, v := range s.groups[group] {
		all = append(all, v)
	}
	return all
}

// drop forgets volumes whose state on the disks is now up to date.
func (s *readyBatcher) drop(group string, uuids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, uuid := range uuids {
		delete(s.groups[group], uuid)
	}
	if len(s.groups[group]) == 0 {
		delete(s.groups, group)
	}
}

// startWorker reports whether the group needs a worker, and records that it has one.
func (s *readyBatcher) startWorker(group string) bool {
	if s.workers == nil {
		s.workers = map[string]bool{}
	}
	hired := !s.workers[group]
	s.workers[group] = true
	return hired
}

// stopWorker reports whether a group's worker may stop, and records that it has.
func (s *readyBatcher) stopWorker(group string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.groups[group]) > 0 {
		return false
	}
	delete(s.workers, group)
	return true
}

// withReady sets the state ready for volumes that requests got: for all but a starting driver they are ready.
func (s *readyBatcher) withReady(state lvm.State) lvm.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.groups) == 0 {
		return state
	}
	state.Groups = slices.Clone(state.Groups)
	for i := range state.Groups {
		g := &state.Groups[i]
		settling := s.groups[g.UUID]
		if len(settling) == 0 {
			continue
		}
		g.LVs = slices.Clone(g.LVs)
		for j := range g.LVs {
			lv := &g.LVs[j]
			if _, is := settling[lv.UUID]; !is {
				continue
			}
			if k := slices.Index(lv.Tags, lvm.StateTag(lvm.StateCreating)); k >= 0 {
				lv.Tags = slices.Clone(lv.Tags)
				lv.Tags[k] = lvm.StateTag(lvm.StateReady)
			}
		}
	}
	return state
}

// onDisk returns the volume with its state on the disks, which the selectors of commands must name. The caller holds the
// group's lock.
func (h *Host) onDisk(v lvm.Volume) lvm.Volume {
	if v.State == lvm.StateReady && h.ready.has(v.ID.VG, v.UUID) {
		v.State = lvm.StateCreating
	}
	return v
}

// markReadyLater adds a volume that Create is about to return. The caller holds the group's lock.
func (h *Host) markReadyLater(v lvm.Volume) {
	s := &h.ready
	s.mu.Lock()
	defer s.mu.Unlock()
	group := v.ID.VG
	if s.groups == nil {
		s.groups = map[string]map[string]lvm.Volume{}
	}
	if s.groups[group] == nil {
		s.groups[group] = map[string]lvm.Volume{}
	}
	s.groups[group][v.UUID] = v
	if s.startWorker(group) {
		h.tasks.Fork(func() { h.markReadyUntilDone(group) })
	}
}

// markReadyUntilDone is a group's worker. It ends when no volume is left, or when the Host closes: Close tags the rest.
func (h *Host) markReadyUntilDone(group string) {
	pause := h.readyDelay
	for !h.ready.stopWorker(group) {
		select {
		case <-h.tasks.Context().Done():
			return
		case <-time.After(pause):
		}
		err := h.markReady(h.tasks.Context(), group, func(ctx context.Context, uuid, what string) (func(), error) {
			return h.locks.AcquireLast(ctx, uuid, what, readyTimeLimit*h.readyDelay)
		})
		if err == nil {
			pause = h.readyDelay
			continue
		}
		pause = min(2*pause, readyLastPause)
		if !h.tasks.IsStopped() {
			h.log.Warn("cannot tag new volumes as ready; the driver retries, at the latest when a pod uses them", "vg", h.seen.name(group), "vg_uuid", group, "pause", pause, "error", err)
		}
	}
}

// markReadyFor tags a volume that a pod waits for, with all others of its group; concurrent callers share one command. Each
// volume was added under the group's lock, so the next holder of the lock tags them all.
func (h *Host) markReadyFor(ctx context.Context, group, uuid string) error {
	for h.ready.has(group, uuid) {
		_, err := oplock.Do(ctx, &h.readyOperations, group, nil, func(ctx context.Context) (struct{}, error) {
			s, unlock, err := h.lockedFirst(ctx, group, "tagging new volumes as ready", owedByMarking, h.readDisks)
			if err != nil {
				return struct{}{}, err
			}
			defer unlock()
			g, err := s.FindGroup(group)
			if err != nil {
				return struct{}{}, err
			}
			return struct{}{}, h.markReadyLocked(ctx, g)
		})
		if err != nil && h.ready.has(group, uuid) {
			return err
		}
	}
	return nil
}

// markReady tags all volumes of a group that wait for it. No request needs that now, so it changes no group with a missing
// disk.
func (h *Host) markReady(ctx context.Context, group string, lock func(ctx context.Context, uuid, what string) (func(), error)) error {
	if len(h.ready.of(group)) == 0 {
		return nil
	}
	unlock, err := lock(ctx, group, "tagging new volumes as ready")
	if err != nil {
		return err
	}
	defer unlock()
	if len(h.ready.of(group)) == 0 {
		return nil // another caller tagged them
	}
	s, err := h.readDisks(ctx)
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
	return h.markReadyLocked(ctx, g)
}

// markReadyLocked tags the volumes, and optionally a new snapshot, under the group's lock. It forgets those that are ready or
// removed afterwards, and returns an error if any is not.
func (h *Host) markReadyLocked(ctx context.Context, g lvm.Group, also ...lvm.Volume) error {
	volumes := append(h.ready.of(g.UUID), also...)
	if len(volumes) == 0 {
		return nil
	}
	steps, err := lvmcmd.ReadyArgs(g, volumes)
	if err != nil {
		return err
	}
	done, err := h.commit(ctx, change{group: g, steps: steps})
	if err != nil {
		return err
	}
	if g, err = done.group(); err != nil {
		return err
	}
	if err := h.flush(g); err != nil {
		return err
	}
	var settled, open []string
	for _, v := range volumes {
		i := slices.IndexFunc(g.LVs, func(lv lvm.LV) bool { return lv.UUID == v.UUID })
		if i >= 0 && slices.Contains(g.LVs[i].Tags, lvm.StateTag(lvm.StateCreating)) || i < 0 && g.IncompleteReason() != "" {
			open = append(open, v.ID.LV)
		} else {
			settled = append(settled, v.UUID)
		}
	}
	h.ready.drop(g.UUID, settled...)
	if len(open) > 0 {
		return lvm.Errorf(lvm.KindOf(done.failure), "volume group %s: cannot tag %q as ready: %w", g.Name, open, done.cause())
	}
	return nil
}

// markRestReady tags what waits in all groups, concurrently.
func (h *Host) markRestReady(ctx context.Context) error {
	s := &h.ready
	s.mu.Lock()
	groups := make([]string, 0, len(s.groups))
	for group := range s.groups {
		groups = append(groups, group)
	}
	s.mu.Unlock()
	return eachAtOnce(groups, func(group string) error { return h.markReady(ctx, group, h.locks.Acquire) })
}
