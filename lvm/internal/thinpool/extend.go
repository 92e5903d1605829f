package thinpool

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
	"github.com/nodelvm/nodelvm/lvm/internal/reserve"
)

// extensionCounts counts the autoextensions of thin pools. The zero value is ready to use.
type extensionCounts struct {
	mu    sync.Mutex
	count map[string]int // by the pool's UUID
}

func (g *extensionCounts) add(uuid string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count == nil {
		g.count = map[string]int{}
	}
	g.count[uuid]++
}

func (g *extensionCounts) of(uuid string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count[uuid]
}

// Manager extends and removes the thin pools of the driver.
type Manager struct {
	engine       *engine.Engine
	tasks        *oplock.Tasks
	reserved     *reserve.Table
	declarations atomic.Pointer[[]lvm.Declaration]
	extensions   extensionCounts
	emptied      emptyPools
}

func New(e *engine.Engine, tasks *oplock.Tasks, reserved *reserve.Table) *Manager {
	return &Manager{engine: e, tasks: tasks, reserved: reserved}
}

// Declare sets the declarations of the last Prepare, with their defaults.
func (m *Manager) Declare(list []lvm.Declaration) { m.declarations.Store(&list) }

// declared returns the declarations of the last Prepare.
func (m *Manager) declared() []lvm.Declaration {
	if list := m.declarations.Load(); list != nil {
		return *list
	}
	return nil
}

// ExtensionsOf returns how often the driver extended a pool since it started.
func (m *Manager) ExtensionsOf(uuid string) int { return m.extensions.of(uuid) }

// ExtendDue extends the thin pools that exceed their autoextend threshold, and removes those that have been empty for
// long enough. A pool that needs nothing costs one query of the kernel and no process. The error joins those of the pools. A
// blocked group delays no other.
func (m *Manager) ExtendDue(ctx context.Context) error {
	leave, err := m.tasks.Join()
	if err != nil {
		return err
	}
	defer leave()
	s, err := m.engine.CachedState(ctx)
	if err != nil {
		return err
	}
	due := map[lvm.VGUUID][]func() error{} // by group
	for _, g := range s.Groups {
		for _, lv := range g.LVs {
			if lv.Thin == nil || !lv.IsManagedPool() {
				continue
			}
			if need, _, err := m.needOf(g, lv.Name); err == nil && need != (alloc.PoolNeed{}) {
				due[g.UUID] = append(due[g.UUID], func() error { return m.extendPool(ctx, g.UUID, lv.Name) })
			}
		}
	}
	for group, uuids := range m.emptyFor(s) {
		for _, uuid := range uuids {
			due[group] = append(due[group], func() error { return m.removePool(ctx, group, uuid) })
		}
	}
	return oplock.EachAtOnce(slices.Sorted(maps.Keys(due)), func(group lvm.VGUUID) error { return m.extendPoolsOf(ctx, group, due[group]) })
}

// extendPoolsOf does what the pools of one group need. It returns early if the group becomes blocked: the command goes on, and
// Close waits for it.
func (m *Manager) extendPoolsOf(ctx context.Context, group lvm.VGUUID, work []func() error) error {
	done := make(chan error, 1)
	m.tasks.Fork(func(context.Context) {
		var errs []error
		for _, do := range work {
			errs = append(errs, do())
		}
		done <- errors.Join(errs...)
	})
	waiting, stop := m.engine.Locks.UntilBlocked(ctx, group)
	defer stop()
	select {
	case err := <-done:
		return err
	case <-waiting.Done():
		return lvm.Errorf(lvm.KindBusy, "extending thin pools continues in the background: %w", context.Cause(waiting))
	}
}

// needOf asks the kernel for a pool's use, and decides what the pool needs.
func (m *Manager) needOf(g lvm.Group, name string) (alloc.PoolNeed, alloc.Pool, error) {
	lv := g.FindLV(name)
	if lv == nil || lv.Thin == nil {
		return alloc.PoolNeed{}, alloc.Pool{}, nil
	}
	s, err := m.engine.PoolStatus(g, *lv)
	if err != nil || s == nil || s.IsMismatched(*lv.Thin) { // LVM's metadata may map other extents than the kernel
		return alloc.PoolNeed{}, alloc.Pool{}, err
	}
	own := *lv.Thin
	own.OvercommitReason = "" // an overcommitted pool may still be extended
	g.LVs = slices.Clone(g.LVs)
	g.FindLV(name).Thin = &own
	p, err := alloc.PoolOf(g, lvm.Class{Pool: name})
	if err != nil {
		return alloc.PoolNeed{}, alloc.Pool{}, err
	}
	return p.Due(*s, alloc.PolicyOf(m.declared(), g.Name, name)), p, nil
}

// extendPool extends one pool under its group's lock, by what it needs then.
func (m *Manager) extendPool(ctx context.Context, group lvm.VGUUID, name string) error {
	s, unlock, err := m.engine.Locked(ctx, group, "extending the thin pool "+name, m.engine.ReadDisks)
	if err != nil {
		return err
	}
	defer unlock()
	g, err := s.FindGroup(group)
	if err != nil {
		return err
	}
	if err := lvm.CheckWritable(s, g); err != nil {
		return err
	}
	need, p, err := m.needOf(g, name)
	if err != nil || need == (alloc.PoolNeed{}) {
		return err
	}
	if need.Refresh {
		return m.engine.Refresh(ctx, g, *g.FindLV(name))
	}
	return m.RunPoolExtension(ctx, p, need)
}

// RunPoolExtension runs the commands and reads what they committed. The caller holds the group's lock.
func (m *Manager) RunPoolExtension(ctx context.Context, p alloc.Pool, need alloc.PoolNeed) error {
	steps, err := lvmcmd.PoolExtensionSteps(p, need)
	if err != nil {
		return err
	}
	done, err := m.engine.Commit(ctx, engine.Change{Group: p.Group, Steps: steps, Legs: p.Group.ComponentsByName(p.Name)})
	if err != nil {
		return err
	}
	g, err := done.Group()
	if err != nil {
		return err
	}
	now, err := alloc.PoolOf(g, lvm.Class{Pool: p.Name})
	if err != nil {
		return err
	}
	if !now.Made {
		return lvm.Errorf(lvm.KindInternal, "the thin pool %s/%s was removed while the driver extended it: %w", g.Name, p.Name, done.Cause())
	}
	pool := g.FindLV(p.Name)
	if m.engine.HasSuspendedComponent(g, *pool) {
		done.Failure = errors.Join(done.Failure, m.engine.Refresh(ctx, g, *pool))
	}
	if now.Data < need.Data || now.Metadata < p.Metadata+need.Metadata {
		return lvm.Errorf(lvm.KindInternal, "cannot extend the thin pool %s/%s: %w", g.Name, p.Name, done.Cause())
	}
	m.extensions.add(pool.UUID)
	m.engine.Log.Info("extended a thin pool", "vg", g.Name, "pool", p.Name, "data", g.Bytes(now.Data), "metadata", g.Bytes(now.Metadata), "free", g.Bytes(g.FreeExtents()))
	return m.engine.Flush(g)
}
