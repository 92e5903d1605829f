package engine

import (
	"context"
	"slices"
	"sync"

	"github.com/nodelvm/nodelvm/lvm"
)

// lastRead records where the last read of the disks found the physical volumes of each group. It also keeps the groups that are new or have a
// new disk for the one place that recovers them. A read starts nothing: it only notes.
type lastRead struct {
	mu        sync.Mutex
	groups    map[lvm.VGUUID][]lvm.PV
	unlabeled []string                  // State.Unlabeled
	names     map[lvm.VGUUID]lvm.VGName // of all reads, for the log
	began     bool                      // Begin was called
	fresh     []lvm.Group               // not taken yet
	noted     chan struct{}             // holds a value if fresh may have groups
}

// Name returns the group's name as last read; "" if it never was.
func (l *lastRead) Name(uuid lvm.VGUUID) lvm.VGName {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.names[uuid]
}

// Begin counts all groups of a state as new, and from now on each that a read has and the read before had not, or had without one
// of its disks or with another device in its place.
func (l *lastRead) Begin(s lvm.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.groups, l.fresh, l.began = nil, nil, true
	l.noteLocked(s)
}

// note records the groups of a read.
func (l *lastRead) note(s lvm.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noteLocked(s)
}

func (l *lastRead) noteLocked(s lvm.State) {
	if l.names == nil {
		l.names = map[lvm.VGUUID]lvm.VGName{}
	}
	now := make(map[lvm.VGUUID][]lvm.PV, len(s.Groups))
	for _, g := range s.Groups {
		l.names[g.UUID], now[g.UUID] = g.Name, g.PVs
		isNew := l.began && !l.hasDevices(g) && !slices.ContainsFunc(l.fresh, func(other lvm.Group) bool { return other.UUID == g.UUID })
		if isNew {
			l.fresh = append(l.fresh, g)
		}
	}
	l.groups, l.unlabeled = now, s.Unlabeled
	if len(l.fresh) > 0 {
		select {
		case l.noted <- struct{}{}:
		default: // a value is there
		}
	}
}

// hasDevices reports whether the last read found each present physical volume of the group on the same device.
func (l *lastRead) hasDevices(g lvm.Group) bool {
	before, known := l.groups[g.UUID]
	return known && !slices.ContainsFunc(g.PVs, func(pv lvm.PV) bool {
		same := func(was lvm.PV) bool { return was.UUID == pv.UUID && was.Device == pv.Device }
		return pv.Device != "" && !slices.ContainsFunc(before, same)
	})
}

// Collect returns the new groups; each one once.
func (l *lastRead) Collect() []lvm.Group {
	l.mu.Lock()
	defer l.mu.Unlock()
	fresh := l.fresh
	l.fresh = nil
	return fresh
}

// Next waits for new groups, and takes them. The error is ctx's.
func (l *lastRead) Next(ctx context.Context) ([]lvm.Group, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.noted:
		return l.Collect(), nil
	}
}

// without returns those of the devices that carry no physical volume of the group. One whose label is lost, or cannot be read now, may.
func (l *lastRead) without(group lvm.VGUUID, devices []string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(devices), func(device string) bool {
		carries := func(pv lvm.PV) bool {
			return pv.Device == device || pv.ReappearedDevice == device || slices.Contains(pv.DuplicateDevices, device)
		}
		return slices.ContainsFunc(l.groups[group], carries) || slices.Contains(l.unlabeled, device)
	})
}
