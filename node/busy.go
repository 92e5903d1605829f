package node

import (
	"sync"

	"github.com/nodelvm/nodelvm/lvm"
)

// busy knows which volumes and paths are being worked on. A second call gets lvm.KindBusy at once: the CO comes again
// (CSI spec, "Concurrency").
type busy struct {
	mu   sync.Mutex
	held map[string]int // by volume handle or path: -1 held by one alone, n > 0 shared by n
}

// alone holds a name for one caller: staging and unstaging a volume, or any work at a target path.
func (b *busy) alone(name string) (release func(), err error) { return b.hold(name, -1) }

// shared holds a volume against those who want it alone: several pods may publish it at once, but never while it is
// being unstaged, when a bind mount could catch the bare directory.
func (b *busy) shared(name string) (release func(), err error) { return b.hold(name, 1) }

func (b *busy) hold(name string, by int) (func(), error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := b.held[name]; n < 0 || by < 0 && n > 0 {
		return nil, lvm.Errorf(lvm.KindBusy, "another operation on %s is in flight on this node; retry", name)
	}
	if b.held == nil {
		b.held = map[string]int{}
	}
	b.held[name] += by
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.held[name] -= by; b.held[name] == 0 {
			delete(b.held, name)
		}
	}, nil
}
