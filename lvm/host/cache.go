package host

import (
	"context"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// defaultCacheTTL: an admin's change shows within a second, and the many who ask for capacity each second, once for every
// storage class, cost one reading of the disks together.
const defaultCacheTTL = 500 * time.Millisecond

// stateCache keeps the last reading of the disks for those who only look: capacity, lists, figures. Whoever decides or
// changes something reads anew. A reading that began before one of our own commands ended is never kept, so whoever was
// told of a change sees it.
type stateCache struct {
	mu     sync.Mutex
	state  lvm.State
	until  time.Time // when the reading is too old
	change int       // counts our own commands
}

// invalidate is called after each command that may have changed something.
func (g *stateCache) invalidate() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.change++
	g.until = time.Time{}
}

// get answers the last reading if it is still good, and else the count of changes before a new one.
func (g *stateCache) get() (s lvm.State, good bool, change int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state, time.Now().Before(g.until), g.change
}

// put takes a reading, unless something changed since it began, or a later one is kept: of two that are under way the first
// may end last.
func (g *stateCache) put(s lvm.State, until time.Time, change int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if change == g.change && until.After(g.until) {
		g.state, g.until = s, until
	}
}

// cachedState is read for those who only look: what it answers may be as old as Config.Freshness.
func (h *Host) cachedState(ctx context.Context) (lvm.State, error) {
	s, good, change := h.cache.get()
	if !good {
		began := time.Now()
		var err error
		if s, err = h.readDisks(ctx); err != nil {
			return lvm.State{}, err
		}
		h.cache.put(s, began.Add(h.cacheTTL), change)
	}
	return h.withKnowledge(s), nil
}
