package engine

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
)

// PoolStatus returns the kernel's status of a pool; nil while the pool is not active.
func (e *Engine) PoolStatus(g lvm.Group, lv lvm.LV) (*lvm.PoolStatus, error) {
	path, active, err := e.Machine.Kernel.Device(lvm.DeviceUUID(g.UUID, lv.UUID) + "-tpool")
	if err != nil || !active {
		return nil, err
	}
	return StatusAt(e, path, "thin-pool", dm.ParsePool)
}

// withOvercommit sets the OvercommitReason of each overcommitted pool in the group.
func (e *Engine) withOvercommit(g lvm.Group) lvm.Group {
	why := map[string]string{}
	for _, lv := range g.LVs {
		if lv.Thin == nil {
			continue
		}
		s, err := e.PoolStatus(g, lv)
		if err != nil || s == nil {
			continue // an inactive pool gets no writes
		}
		if p, err := alloc.PoolOf(g, lvm.Class{Pool: lv.Name}); err == nil {
			if text := p.OvercommitReason(*s); text != "" {
				why[lv.Name] = text
			}
		}
	}
	if len(why) == 0 {
		return g
	}
	g.LVs = slices.Clone(g.LVs)
	for name := range maps.Keys(why) {
		marked := *g.FindLV(name).Thin
		marked.OvercommitReason = why[name]
		g.FindLV(name).Thin = &marked
	}
	return g
}

// StatusAt returns the kernel's status of the device at this path if it has a target of this type, or nil.
func StatusAt[S any](e *Engine, path, target string, parse func(string) (S, error)) (*S, error) {
	kind, params, err := e.Machine.Kernel.Status(path)
	if err != nil || kind != target {
		return nil, err // the device may have disappeared meanwhile
	}
	s, err := parse(params)
	if err != nil {
		e.Log.Warn("cannot parse device-mapper status", "device", path, "error", err)
		return nil, err
	}
	return &s, nil
}

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
