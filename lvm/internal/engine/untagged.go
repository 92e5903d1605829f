package engine

import (
	"maps"
	"slices"
	"sync"

	"github.com/nodelvm/nodelvm/lvm"
)

// untaggedVolumes are the volumes that requests got while their state on the disks is still "creating"; package ready tags them.
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

// Of lists a group's volumes that need the ready tag.
func (s *untaggedVolumes) Of(group lvm.VGUUID) []lvm.Volume {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []lvm.Volume
	for _, v := range s.groups[group] {
		all = append(all, v)
	}
	return all
}

// Drop forgets volumes whose state on the disks is now up to date.
func (s *untaggedVolumes) Drop(group lvm.VGUUID, uuids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, uuid := range uuids {
		delete(s.groups[group], uuid)
	}
	if len(s.groups[group]) == 0 {
		delete(s.groups, group)
	}
}

// Add adds a volume. It reports whether the group needs a worker, and records that it has one.
func (s *untaggedVolumes) Add(v lvm.Volume) (startWorker bool) {
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

// StopWorker reports whether a group's worker may stop, and records that it has.
func (s *untaggedVolumes) StopWorker(group lvm.VGUUID) bool {
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

// GroupsWaiting lists the UUIDs of the groups with such volumes.
func (s *untaggedVolumes) GroupsWaiting() []lvm.VGUUID {
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
