package engine

import (
	"context"
	"slices"
	"sync"

	"github.com/nodelvm/nodelvm/lvm"
)

// arrivals records which groups and disks the last read had, and keeps the groups that are new or have a new disk for the one place
// that recovers them. A read starts nothing: it only notes.
type arrivals struct {
	mu     sync.Mutex
	groups map[lvm.VGUUID]map[string]string // the device of each present PV, by the UUIDs of group and PV; nil before Begin
	names  map[lvm.VGUUID]lvm.VGName        // by UUID, for the log
	fresh  []lvm.Group                      // not taken yet
	noted  chan struct{}                    // holds a value if fresh may have groups
}

// Name returns the group's name as last read; "" if it never was.
func (a *arrivals) Name(uuid lvm.VGUUID) lvm.VGName {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.names[uuid]
}

// Begin counts all groups of a state as new, and from now on each that a read has and the read before had not, or had without one
// of its disks or with another device in its place.
func (a *arrivals) Begin(s lvm.State) {
	a.mu.Lock()
	a.groups, a.fresh = map[lvm.VGUUID]map[string]string{}, nil
	a.mu.Unlock()
	a.note(s)
}

// note records the groups of a read.
func (a *arrivals) note(s lvm.State) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.names == nil {
		a.names = map[lvm.VGUUID]lvm.VGName{}
	}
	for _, g := range s.Groups {
		a.names[g.UUID] = g.Name
	}
	if a.groups == nil {
		return
	}
	now := make(map[lvm.VGUUID]map[string]string, len(s.Groups))
	for _, g := range s.Groups {
		before, known := a.groups[g.UUID]
		now[g.UUID] = make(map[string]string, len(g.PVs))
		for _, pv := range g.PVs {
			if pv.Device != "" {
				now[g.UUID][pv.UUID] = pv.Device
				known = known && before[pv.UUID] == pv.Device
			}
		}
		if !known && !slices.ContainsFunc(a.fresh, func(other lvm.Group) bool { return other.UUID == g.UUID }) {
			a.fresh = append(a.fresh, g)
		}
	}
	a.groups = now
	if len(a.fresh) > 0 {
		select {
		case a.noted <- struct{}{}:
		default: // a value is there
		}
	}
}

// Collect returns the new groups; each one once.
func (a *arrivals) Collect() []lvm.Group {
	a.mu.Lock()
	defer a.mu.Unlock()
	fresh := a.fresh
	a.fresh = nil
	return fresh
}

// Next waits for new groups, and takes them. The error is ctx's.
func (a *arrivals) Next(ctx context.Context) ([]lvm.Group, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-a.noted:
		return a.Collect(), nil
	}
}
