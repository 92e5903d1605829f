package engine

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// Lifetimes of what the driver knows about device-mapper's targets: an admin may install a module at any time.
const (
	targetsGoodFor  = 10 * time.Second
	loadFailedAgain = 10 * time.Minute // until the driver again lets LVM try to load a module that has a file
)

// targets caches which device-mapper targets the kernel lacks.
type targets struct {
	mu     sync.Mutex
	until  time.Time
	states map[string]lvm.TargetState
	failed map[string]time.Time // targets that LVM and the kernel could not load, and when
}

// missingTargets returns the targets that the kernel lacks and cannot load; none if that is unknown: then LVM says why it fails.
func (e *Engine) missingTargets() []string {
	t := &e.targets
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); !now.Before(t.until) {
		t.until = now.Add(targetsGoodFor)
		states, err := e.Machine.Kernel.TargetStates(lvm.Targets, false)
		if err != nil {
			e.Log.Debug("cannot determine which device-mapper targets the kernel has", "error", err)
		}
		t.states = states
		maps.DeleteFunc(t.failed, func(name string, at time.Time) bool {
			return states[name] != lvm.TargetLoadable || now.Sub(at) >= loadFailedAgain
		})
	}
	var missing []string
	for _, name := range lvm.Targets {
		if _, failed := t.failed[name]; failed || t.states[name] == lvm.TargetMissing {
			missing = append(missing, name)
		}
	}
	return missing
}

// NoteFailure must be called after a failed command for a volume of the class. A target that the kernel lacks even now is one that LVM
// and the kernel could not load, although its module has a file.
func (e *Engine) NoteFailure(class lvm.Class) {
	states, err := e.Machine.Kernel.TargetStates(class.Targets(), true)
	if err != nil {
		return // as in missingTargets
	}
	t := &e.targets
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(states)) {
		if states[name] != lvm.TargetLoadable {
			continue
		}
		if t.failed == nil {
			t.failed = map[string]time.Time{}
		}
		t.failed[name] = time.Now()
		e.Log.Error("LVM cannot load a kernel module, so the node has no capacity for volumes that need it", "module", "dm-"+name)
	}
}
