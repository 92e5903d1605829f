package oplock

import (
	"context"
	"slices"
	"sync"

	"github.com/nodelvm/nodelvm/lvm"
)

// Turns lets one volume of a group be zeroed at a time: the smallest first, so that many volumes wait only briefly. Every
// fourth turn goes to the one that has waited longest, so that large ones end too. The zero value is ready to use.
type Turns struct {
	mu      sync.Mutex
	arrived int64
	groups  map[string]*turnQueue // by group's UUID
}

type turnQueue struct {
	holder  *Turn
	waiting []*Turn
	given   int
}

// Turn is a volume that is being zeroed, or waits for that.
type Turn struct {
	turns   *Turns
	queue   *turnQueue
	arrival int64
	left    lvm.Bytes     // not zeroed yet
	chunks  int           // zeroed in this turn
	granted chan struct{} // holds a value once it has the turn
}

const (
	oldestTurn = 4  // every fourth turn goes to the longest waiter
	turnChunks = 16 // a turn's chunks before a smaller volume may take over: 1 GiB
)

// Wait waits for a turn to zero so many bytes. The error is ctx's.
func (w *Turns) Wait(ctx context.Context, group string, left lvm.Bytes) (*Turn, error) {
	w.mu.Lock()
	if w.groups == nil {
		w.groups = map[string]*turnQueue{}
	}
	q := w.groups[group]
	if q == nil {
		q = &turnQueue{}
		w.groups[group] = q
	}
	w.arrived++
	t := &Turn{turns: w, queue: q, arrival: w.arrived, left: left, granted: make(chan struct{}, 1)}
	q.waiting = append(q.waiting, t)
	if q.holder == nil {
		q.next()
	}
	w.mu.Unlock()
	select {
	case <-t.granted:
		return t, nil
	case <-ctx.Done():
		t.End()
		return nil, ctx.Err()
	}
}

// next gives the turn to a waiter. The caller holds mu.
func (q *turnQueue) next() {
	q.holder = nil
	if len(q.waiting) == 0 {
		return
	}
	q.given++
	oldest := q.given%oldestTurn == 0
	best := slices.MinFunc(q.waiting, func(a, b *Turn) int {
		if !oldest && a.left != b.left {
			return int(max(-1, min(1, a.left-b.left)))
		}
		return int(a.arrival - b.arrival)
	})
	q.waiting = slices.DeleteFunc(q.waiting, func(t *Turn) bool { return t == best })
	best.chunks = 0
	q.holder = best
	best.granted <- struct{}{}
}

// Pause must be called after each chunk; it lets a smaller waiter go first, until ctx ends.
func (t *Turn) Pause(ctx context.Context, left lvm.Bytes) {
	t.turns.mu.Lock()
	t.left = left
	t.chunks++
	smaller := slices.ContainsFunc(t.queue.waiting, func(other *Turn) bool { return other.left < left })
	if !smaller || t.chunks < turnChunks {
		t.turns.mu.Unlock()
		return
	}
	t.queue.next()
	t.queue.waiting = append(t.queue.waiting, t)
	t.turns.mu.Unlock()
	select {
	case <-t.granted:
	case <-ctx.Done():
	}
}

// End gives the turn to the next waiter, or stops waiting.
func (t *Turn) End() {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	t.queue.waiting = slices.DeleteFunc(t.queue.waiting, func(other *Turn) bool { return other == t })
	if t.queue.holder == t {
		t.queue.next()
	}
}
