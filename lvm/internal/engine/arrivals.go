package engine

import (
	"sync"

	"github.com/nodelvm/nodelvm/lvm"
)

// arrivals records the groups of the last read, so that each new one is recovered once. Before begin it reports no new
// groups.
type arrivals struct {
	mu     sync.Mutex
	groups map[string]bool   // by UUID; nil before begin
	names  map[string]string // by UUID, for the log
}

// Name returns the group's name as last read; "" if it never was.
func (a *arrivals) Name(uuid string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.names[uuid]
}

func (a *arrivals) Begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.groups = map[string]bool{}
}

// NewGroups returns the groups that the last read did not have.
func (a *arrivals) NewGroups(s lvm.State) (list []lvm.Group) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.names == nil {
		a.names = map[string]string{}
	}
	for _, g := range s.Groups {
		a.names[g.UUID] = g.Name
	}
	if a.groups == nil {
		return nil
	}
	now := make(map[string]bool, len(s.Groups))
	for _, g := range s.Groups {
		now[g.UUID] = true
		if !a.groups[g.UUID] {
			list = append(list, g)
		}
	}
	a.groups = now
	return list
}
