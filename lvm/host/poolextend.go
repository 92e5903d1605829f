package host

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
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

// ExtendThinPools extends the thin pools that exceed their autoextend threshold, and removes those that have been empty for
// long enough. A pool that needs nothing costs one query of the kernel and no process. The error joins those of the pools. A
// blocked group delays no other.
func (h *Host) ExtendThinPools(ctx context.Context) error {
	leave, err := h.tasks.Join()
	if err != nil {
		return err
	}
	defer leave()
	s, err := h.cachedState(ctx)
	if err != nil {
		return err
	}
	due := map[string][]func() error{} // by group
	for _, g := range s.Groups {
		for _, lv := range g.LVs {
			if lv.Thin == nil || !lvm.IsPool(lv) {
				continue
			}
			if need, _, err := h.needOf(g, lv.Name); err == nil && need != (alloc.PoolNeed{}) {
				due[g.UUID] = append(due[g.UUID], func() error { return h.extendPool(ctx, g.UUID, lv.Name) })
			}
		}
	}
	for group, uuids := range h.emptyFor(s) {
		for _, uuid := range uuids {
			due[group] = append(due[group], func() error { return h.removePool(ctx, group, uuid) })
		}
	}
	return eachAtOnce(slices.Sorted(maps.Keys(due)), func(group string) error { return h.extendPoolsOf(ctx, group, due[group]) })
}

// extendPoolsOf does what the pools of one group need. It returns early if the group becomes blocked: the command goes on, and
// Close waits for it.
func (h *Host) extendPoolsOf(ctx context.Context, group string, work []func() error) error {
	done := make(chan error, 1)
	h.tasks.Fork(func() {
		var errs []error
		for _, do := range work {
			errs = append(errs, do())
		}
		done <- errors.Join(errs...)
	})
	waiting, stop := h.locks.UntilBlocked(ctx, group)
	defer stop()
	select {
	case err := <-done:
		return err
	case <-waiting.Done():
		return lvm.Errorf(lvm.KindBusy, "extending thin pools continues in the background: %w", context.Cause(waiting))
	}
}

// needOf asks the kernel for a pool's use, and decides what the pool needs.
func (h *Host) needOf(g lvm.Group, name string) (alloc.PoolNeed, alloc.Pool, error) {
	lv := g.FindLV(name)
	if lv == nil || lv.Thin == nil {
		return alloc.PoolNeed{}, alloc.Pool{}, nil
	}
	s, err := h.poolStatus(g, *lv)
	if err != nil || s == nil {
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
	return p.Due(*s, alloc.PolicyOf(h.declared(), g.Name, name)), p, nil
}

// extendPool extends one pool under its group's lock, by what it needs then.
func (h *Host) extendPool(ctx context.Context, group, name string) error {
	s, unlock, err := h.locked(ctx, group, "extending the thin pool "+name, h.readDisks)
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
	need, p, err := h.needOf(g, name)
	if err != nil || need == (alloc.PoolNeed{}) {
		return err
	}
	if need.Refresh {
		return h.refresh(ctx, g, *g.FindLV(name))
	}
	return h.runPoolExtension(ctx, p, need)
}

// runPoolExtension runs the commands and reads what they committed. The caller holds the group's lock.
func (h *Host) runPoolExtension(ctx context.Context, p alloc.Pool, need alloc.PoolNeed) error {
	steps, err := lvmcmd.PoolExtensionSteps(p, need)
	if err != nil {
		return err
	}
	done, err := h.commit(ctx, change{group: p.Group, steps: steps, legs: p.Group.ComponentsByName(p.Name)})
	if err != nil {
		return err
	}
	g, err := done.group()
	if err != nil {
		return err
	}
	now, err := alloc.PoolOf(g, lvm.Class{Pool: p.Name})
	if err != nil {
		return err
	}
	if !now.Made {
		return lvm.Errorf(lvm.KindInternal, "the thin pool %s/%s was removed while the driver extended it: %w", g.Name, p.Name, done.cause())
	}
	pool := g.FindLV(p.Name)
	if h.hasSuspendedComponent(g, *pool) {
		done.failure = errors.Join(done.failure, h.refresh(ctx, g, *pool))
	}
	if now.Data < need.Data || now.Metadata < p.Metadata+need.Metadata {
		return lvm.Errorf(lvm.KindInternal, "cannot extend the thin pool %s/%s: %w", g.Name, p.Name, done.cause())
	}
	h.poolExtensions.add(pool.UUID)
	h.log.Info("extended a thin pool", "vg", g.Name, "pool", p.Name, "data", g.Bytes(now.Data), "metadata", g.Bytes(now.Metadata), "free", g.Bytes(g.FreeExtents()))
	return h.flush(g)
}

// poolStatus returns the kernel's status of a pool; nil while the pool is not active.
func (h *Host) poolStatus(g lvm.Group, lv lvm.LV) (*lvm.PoolStatus, error) {
	path, active, err := h.machine.Kernel.Device(lvm.DeviceUUID(g.UUID, lv.UUID) + "-tpool")
	if err != nil || !active {
		return nil, err
	}
	return status(&groupCheck{host: h, paths: map[string]string{lvm.DeviceUUID(g.UUID, lv.UUID) + "-tpool": path}}, lvm.DeviceUUID(g.UUID, lv.UUID)+"-tpool", "thin-pool", dm.ParsePool)
}

// withOvercommit sets the OvercommitReason of each overcommitted pool in the group.
func (h *Host) withOvercommit(g lvm.Group) lvm.Group {
	why := map[string]string{}
	for _, lv := range g.LVs {
		if lv.Thin == nil {
			continue
		}
		s, err := h.poolStatus(g, lv)
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
