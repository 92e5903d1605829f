package node

import (
	"sync"

	"github.com/nodelvm/nodelvm/lvm"
)

// operationLocks has a lock for each volume and path with an operation in flight. A second operation gets lvm.KindBusy at
// once: the CO retries (CSI spec, "Concurrency").
type operationLocks struct {
	mu   sync.Mutex
	held map[string]int // by volume handle or path: -1 held exclusively, n > 0 shared by n
}

// lock locks a name exclusively: staging and unstaging a volume, publishing one for one pod or as a read-only raw device, or any work at
// a target path.
func (l *operationLocks) lock(name string) (release func(), err error) { return l.acquire(name, -1) }

// lockShared locks a volume against exclusive holders: several pods may publish it at once, but not while it is being unstaged,
// when a bind mount could bind the empty directory.
func (l *operationLocks) lockShared(name string) (release func(), err error) {
	return l.acquire(name, 1)
}

func (l *operationLocks) acquire(name string, by int) (func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.held[name]; n < 0 || by < 0 && n > 0 {
		return nil, lvm.Errorf(lvm.KindBusy, "another operation on %s is in flight on this node; retry", name)
	}
	if l.held == nil {
		l.held = map[string]int{}
	}
	l.held[name] += by
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.held[name] -= by; l.held[name] == 0 {
			delete(l.held, name)
		}
	}, nil
}
