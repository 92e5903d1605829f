package move

import (
	"time"

	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// pace is how often an agent reads a move that waits. No watch shows it the other node's answers, nor the pods; each reading costs several
// requests, and tenants can have any number of moves wait. So the interval is a share of the time for which the move has waited: a short copy
// is not made longer by much, and a pod that runs for days is not asked for twice a second.
type pace struct {
	volume string
	phase  string
	warn   bool
	of     string
	since  time.Time // when it began to wait so
	next   time.Time
}

const (
	paceShare = 10                     // The interval is this part of the time that a move has waited.
	paceReady = 100                    // As paceShare, of a move that waits for a user alone.
	paceEach  = 250 * time.Millisecond // It is at most lookLater, or so long for each move of the namespace that waits.
	paceFew   = 100                    // The change of a claim makes the others of its namespace due, if no more wait.
)

// maxPaces bounds the memory. A move that is dropped counts as one that waits since then.
const maxPaces = 10_000

// key identifies a unit in the agent's memory.
func (u unit) key() string {
	if u.claim == "" {
		return "/" + u.volume
	}
	return u.namespace + "/" + u.claim
}

// rest returns when to read a unit again that waits as the step says.
func (a *Agent) rest(u unit, s step) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, p := a.now(), a.paces[u.key()]
	if p.phase != s.phase || p.warn != s.warn || p.of != s.of {
		p = pace{phase: s.phase, warn: s.warn, of: s.of, since: now}
	}
	share := time.Duration(paceShare)
	if s.ready {
		share = paceReady
	}
	if len(a.paces) >= maxPaces {
		clear(a.paces)
	}
	waiting := 0
	for key := range a.paces {
		if ns, _ := kubeclient.ClaimKey(key); ns == u.namespace {
			waiting++
		}
	}
	again := min(max(lookLater, time.Duration(waiting)*paceEach), max(lookSoon, now.Sub(p.since)/share))
	p.volume, p.next = u.volume, now.Add(again)
	a.paces[u.key()] = p
	return again
}

// early returns how long a unit that waits need not be read yet; 0: it is due.
func (a *Agent) early(u unit) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(0, a.paces[u.key()].next.Sub(a.now()))
}

// CopyEnded makes the agent read the move of a volume at once, and then often for a moment: this node has sent or received it completely, and the other
// node is about to say what it knows.
func (a *Agent) CopyEnded(volume string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, p := range a.paces {
		if p.volume != volume {
			continue
		}
		p.since, p.next = a.now(), time.Time{}
		a.paces[key] = p
		ns, _ := kubeclient.ClaimKey(key)
		a.queue.Add(ns)
	}
}

// forgetPace is for a unit that does not wait any more.
func (a *Agent) forgetPace(u unit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.paces, u.key())
}

// readSoon makes all units of a namespace due: the change of one claim may be what another waits for. The caller holds the lock.
func (a *Agent) readSoon(namespace string) {
	if len(a.paces) > paceFew {
		return
	}
	for key, p := range a.paces {
		if ns, _ := kubeclient.ClaimKey(key); ns == namespace && !p.next.IsZero() {
			p.next = time.Time{}
			a.paces[key] = p
		}
	}
}
