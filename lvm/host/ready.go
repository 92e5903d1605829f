package host

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

// readyBatcher remembers the volumes that were made and answered, and whose state on the disks is still "creating": they are
// marked as ready many at a time, once no other change waits for their group, or as soon as one of them is staged, so that a
// new volume costs one LVM process before its answer and only a share of one after it. Nobody has used such a volume yet, since Activate marks it first; if the
// driver ends before, the next one blanks its beginning once more and marks it (Host.finish).
type readyBatcher struct {
	mu      sync.Mutex
	groups  map[string]map[string]lvm.Volume // by the group's UUID, then by the volume's
	workers map[string]bool                  // groups that have a worker
}

// A failed marking is tried again after a pause that doubles up to this.
const readyLastPause = 5 * time.Minute

// readyTimeLimit is for how many pauses volumes that nobody stages wait for the end of a burst, which one command marks then. The
// limit is for a driver that ends: the next one blanks the beginning of each volume that is not marked.
const readyTimeLimit = 30

// has tells whether the volume was answered and not marked yet.
func (s *readyBatcher) has(group, uuid string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, there := s.groups[group][uuid]
	return there
}

// of lists a group's volumes that are to be marked.
func (s *readyBatcher) of(group string) []lvm.Volume {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []lvm.Volume
	for _, v := range s.groups[group] {
		all = append(all, v)
	}
	return all
}

// drop forgets volumes, since the disks tell their state now.
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

// startWorker tells whether a group needs a worker; it has one then.
func (s *readyBatcher) startWorker(group string) bool {
	if s.workers == nil {
		s.workers = map[string]bool{}
	}
	hired := !s.workers[group]
	s.workers[group] = true
	return hired
}

// stopWorker tells whether a group's worker may end, since nothing is left to be done.
func (s *readyBatcher) stopWorker(group string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.groups[group]) > 0 {
		return false
	}
	delete(s.workers, group)
	return true
}

// withReady shows volumes that were answered as ready, which they are for everybody but a driver that starts.
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

// onDisk is the volume in the state that the disks tell, which the guards of commands must name. The group's lock must
// be held.
func (h *Host) onDisk(v lvm.Volume) lvm.Volume {
	if v.State == lvm.StateReady && h.ready.has(v.ID.VG, v.UUID) {
		v.State = lvm.StateCreating
	}
	return v
}

// markReadyLater takes up a volume that is about to be answered. The group's lock must be held.
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
		h.background.Go(func() { h.markReadyUntilDone(group) })
	}
}

// markReadyUntilDone is a group's worker. It ends when nothing is left to be marked, or when the Host closes, which marks
// what is left.
func (h *Host) markReadyUntilDone(group string) {
	pause := h.readyDelay
	for !h.ready.stopWorker(group) {
		select {
		case <-h.closing.Done():
			return
		case <-time.After(pause):
		}
		err := h.markReady(h.closing, group, func(ctx context.Context, uuid string) (func(), error) {
			return h.writers.lockLast(ctx, uuid, readyTimeLimit*h.readyDelay)
		})
		if err == nil {
			pause = h.readyDelay
			continue
		}
		pause = min(2*pause, readyLastPause)
		if h.closing.Err() == nil {
			h.log.Warn("new volumes could not be marked as ready; it is tried again, and when they are used", "vg", h.seen.name(group), "vg_uuid", group, "pause", pause, "error", err)
		}
	}
}

// markReadyFor marks a volume that a pod waits for, with all others of its group. All who wait for that share one command.
// Each of their volumes was taken up under the group's lock, so the next holder of the lock marks them all.
func (h *Host) markReadyFor(ctx context.Context, group, uuid string) error {
	for h.ready.has(group, uuid) {
		_, err := do(ctx, &h.readyOperations, group, nil, func(ctx context.Context) (struct{}, error) {
			s, unlock, err := h.lockedFirst(ctx, group, "marking new volumes as ready", owedByMarking, h.readDisks)
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

// markReady marks all volumes of a group that wait for it. Nobody has asked, so it disturbs no disk that is away.
func (h *Host) markReady(ctx context.Context, group string, lock func(context.Context, string) (func(), error)) error {
	if len(h.ready.of(group)) == 0 {
		return nil
	}
	unlock, err := h.lockBy(ctx, group, "marking new volumes as ready", lock)
	if err != nil {
		return err
	}
	defer unlock()
	if len(h.ready.of(group)) == 0 {
		return nil // others have asked meanwhile
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

// markReadyLocked is settle under the group's lock; a new snapshot may come along. Those that are ready afterwards, or gone,
// are forgotten; if any is not, the error says so.
func (h *Host) markReadyLocked(ctx context.Context, g lvm.Group, also ...lvm.Volume) error {
	volumes := append(h.ready.of(g.UUID), also...)
	if len(volumes) == 0 {
		return nil
	}
	steps, err := lvmcmd.ReadyArgs(g, volumes)
	if err != nil {
		return err
	}
	failure := h.run(ctx, g, steps)
	s, err := h.readDisks(ctx)
	if err != nil {
		return err
	}
	if g, err = s.FindGroup(g.UUID); err != nil {
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
		return lvm.Errorf(lvm.KindOf(failure), "volume group %s: %q could not be marked as ready: %w", g.Name, open, orNoEffect(failure))
	}
	return nil
}

// markRestReady marks what waits in all groups, side by side.
func (h *Host) markRestReady(ctx context.Context) error {
	s := &h.ready
	s.mu.Lock()
	groups := make([]string, 0, len(s.groups))
	for group := range s.groups {
		groups = append(groups, group)
	}
	s.mu.Unlock()
	return eachAtOnce(groups, func(group string) error { return h.markReady(ctx, group, h.writers.lock) })
}
