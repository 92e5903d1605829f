package oplock

import (
	"context"
	"slices"
	"sync"

	"github.com/nodelvm/nodelvm/lvm"
)

// ZeroQueue lets one volume of a group be zeroed at a time: the smallest first, so that many volumes wait only briefly. Every
// fourth slot goes to the one that has waited longest, so that large ones end too. The zero value is ready to use.
type ZeroQueue struct {
	mu      sync.Mutex
	arrived int64
	groups  map[lvm.VGUUID]*groupQueue // by group's UUID
}

type groupQueue struct {
	holder  *ZeroSlot
	waiting []*ZeroSlot
	given   int
}

// ZeroSlot is a volume that is being zeroed, or waits for that.
type ZeroSlot struct {
	queues  *ZeroQueue
	queue   *groupQueue
	arrival int64
	left    lvm.Bytes     // not zeroed yet
	chunks  int           // zeroed in this slot
	granted chan struct{} // holds a value once it may zero
}

const (
	oldestSlot = 4  // every fourth slot goes to the longest waiter
	slotChunks = 16 // chunks before a smaller volume may take over: 1 GiB
)

// Wait waits until the caller may zero so many bytes. The error is ctx's.
func (w *ZeroQueue) Wait(ctx context.Context, group lvm.VGUUID, left lvm.Bytes) (*ZeroSlot, error) {
	w.mu.Lock()
	if w.groups == nil {
		w.groups = map[lvm.VGUUID]*groupQueue{}
	}
	q := w.groups[group]
	if q == nil {
		q = &groupQueue{}
		w.groups[group] = q
	}
	w.arrived++
	t := &ZeroSlot{queues: w, queue: q, arrival: w.arrived, left: left, granted: make(chan struct{}, 1)}
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

// next lets a waiter zero. The caller holds mu.
func (q *groupQueue) next() {
	q.holder = nil
	if len(q.waiting) == 0 {
		return
	}
	q.given++
	oldest := q.given%oldestSlot == 0
	best := slices.MinFunc(q.waiting, func(a, b *ZeroSlot) int {
		if !oldest && a.left != b.left {
			return int(max(-1, min(1, a.left-b.left)))
		}
		return int(a.arrival - b.arrival)
	})
	q.waiting = slices.DeleteFunc(q.waiting, func(t *ZeroSlot) bool { return t == best })
	best.chunks = 0
	q.holder = best
	best.granted <- struct{}{}
}

// Pause must be called after each chunk; it lets a smaller waiter go first, until ctx ends.
func (t *ZeroSlot) Pause(ctx context.Context, left lvm.Bytes) {
	t.queues.mu.Lock()
	t.left = left
	t.chunks++
	smaller := slices.ContainsFunc(t.queue.waiting, func(other *ZeroSlot) bool { return other.left < left })
	if !smaller || t.chunks < slotChunks {
		t.queues.mu.Unlock()
		return
	}
	t.queue.next()
	t.queue.waiting = append(t.queue.waiting, t)
	t.queues.mu.Unlock()
	select {
	case <-t.granted:
	case <-ctx.Done():
	}
}

// End lets the next waiter zero, or stops waiting.
func (t *ZeroSlot) End() {
	t.queues.mu.Lock()
	defer t.queues.mu.Unlock()
	t.queue.waiting = slices.DeleteFunc(t.queue.waiting, func(other *ZeroSlot) bool { return other == t })
	if t.queue.holder == t {
		t.queue.next()
	}
}
