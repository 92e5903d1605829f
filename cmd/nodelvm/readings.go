package main

import (
	"context"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/report"
)

// sharedWork is work of which at most one run is under way, in its own goroutine: work that waits in the kernel costs one goroutine, and
// whoever asks meanwhile shares its result.
type sharedWork[T any] struct {
	mu      sync.Mutex
	running *workRun[T]
}

// workRun is one run of the work. Read result only after done is closed.
type workRun[T any] struct {
	done   chan struct{}
	result T
}

// join returns the run under way, or starts one.
func (s *sharedWork[T]) join(work func() T) *workRun[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		return s.running
	}
	r := &workRun[T]{done: make(chan struct{})}
	s.running = r
	go func() {
		result := work()
		s.mu.Lock()
		defer s.mu.Unlock()
		r.result, s.running = result, nil
		close(r.done)
	}()
	return r
}

const (
	// scrapePatience is how long a scrape waits for a reading of the node before it gets the last one. Prometheus waits ten seconds as a rule.
	scrapePatience = 2 * time.Second
	// lastReadingFor is how old a reading may be that a scrape gets: after that the scrape fails, as Prometheus expects of a target without
	// data.
	lastReadingFor = time.Minute
)

// readings reads the document about the node for scrapes. Those that overlap share a reading.
type readings struct {
	read    func(context.Context) report.Node
	current sharedWork[report.Node]

	mu   sync.Mutex
	last report.Node // Time is zero before the first one
}

// get returns the document as it is now, or the last one if that takes long. It waits without limit if no reading is young enough.
func (r *readings) get() report.Node {
	now := r.current.join(func() report.Node {
		ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
		defer cancel()
		n := r.read(ctx)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.last = n
		return n
	})
	timer := time.NewTimer(scrapePatience)
	defer timer.Stop()
	select {
	case <-now.done:
		return now.result
	case <-timer.C:
	}
	r.mu.Lock()
	last := r.last
	r.mu.Unlock()
	if time.Since(last.Time) < lastReadingFor {
		return last
	}
	<-now.done
	return now.result
}
