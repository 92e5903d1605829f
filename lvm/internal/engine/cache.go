package engine

import (
	"context"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// defaultCacheTTL lets a change by an admin show within a second. The capacity requests of all storage classes, which come
// every second, share one read of the disks.
const defaultCacheTTL = 500 * time.Millisecond

// stateCache keeps the last state that the driver read, for requests that only report: capacity, lists, metrics. Whoever
// decides or changes something reads the disks again. The cache never keeps a read that began before a command of the driver
// ended, so the result of a command is visible as soon as it is reported.
type stateCache struct {
	mu     sync.Mutex
	state  lvm.State
	until  time.Time // when the state expires
	change int       // counts the driver's commands
}

// invalidate must be called after each command that may have changed something.
func (g *stateCache) invalidate() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.change++
	g.until = time.Time{}
}

// get returns the cached state, whether it is still valid, and the change count to pass to put.
func (g *stateCache) get() (s lvm.State, good bool, change int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state, time.Now().Before(g.until), g.change
}

// put stores a state unless a command ended since its read began, or the cache holds a later one: of two concurrent reads, the
// one that began first may end last.
func (g *stateCache) put(s lvm.State, until time.Time, change int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if change == g.change && until.After(g.until) {
		g.state, g.until = s, until
	}
}

// CachedState returns a state that may be as old as Config.CacheTTL.
func (e *Engine) CachedState(ctx context.Context) (lvm.State, error) {
	s, good, change := e.cache.get()
	if !good {
		began := time.Now()
		var err error
		if s, err = e.ReadDisks(ctx); err != nil {
			return lvm.State{}, err
		}
		e.cache.put(s, began.Add(e.cacheTTL), change)
	}
	return e.WithKnowledge(s), nil
}
