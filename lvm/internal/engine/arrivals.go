package engine

import (
	"context"
	"slices"
	"sync"

	"github.com/nodelvm/nodelvm/lvm"
)

// arrivals records which groups the last read had, and keeps the new ones for the one place that recovers them. A read starts
// nothing: it only notes.
type arrivals struct {
	mu     sync.Mutex
	groups map[lvm.VGUUID]bool       // by UUID; nil before Begin
	names  map[lvm.VGUUID]lvm.VGName // by UUID, for the log
	fresh  []lvm.Group               // not taken yet
	noted  chan struct{}             // holds a value if fresh may have groups
}

// Name returns the group's name as last read; "" if it never was.
func (a *arrivals) Name(uuid lvm.VGUUID) lvm.VGName {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.names[uuid]
}

// Begin counts all groups of a state as new, and from now on each that a read has and the read before had not.
func (a *arrivals) Begin(s lvm.State) {
	a.mu.Lock()
	a.groups, a.fresh = map[lvm.VGUUID]bool{}, nil
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
	now := make(map[lvm.VGUUID]bool, len(s.Groups))
	for _, g := range s.Groups {
		now[g.UUID] = true
		if !a.groups[g.UUID] && !slices.ContainsFunc(a.fresh, func(other lvm.Group) bool { return other.UUID == g.UUID }) {
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
