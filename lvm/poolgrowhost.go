package lvm

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
)

// growths counts how often pools were enlarged. The zero value is ready to use.
type growths struct {
	mu    sync.Mutex
	count map[string]int // by the pool's UUID
}

func (g *growths) add(uuid string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count == nil {
		g.count = map[string]int{}
	}
	g.count[uuid]++
}

func (g *growths) of(uuid string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count[uuid]
}

// TendPools enlarges the thin pools that fill up, as their policy says, and removes those that have held nothing for a while. One that
// needs nothing costs a question to the kernel; no process. The error joins those of the pools for which that failed. A group that hangs is not waited for, and keeps no
// other one waiting.
func (h *Host) TendPools(ctx context.Context) error {
	leave, err := h.enter()
	if err != nil {
		return err
	}
	defer leave()
	s, err := h.look(ctx)
	if err != nil {
		return err
	}
	due := map[string][]func() error{} // by group
	for _, g := range s.Groups {
		for _, lv := range g.LVs {
			if lv.Thin == nil || !isPool(lv) {
				continue
			}
			if need, _, err := h.needOf(g, lv.Name); err == nil && need != (poolNeed{}) {
				due[g.UUID] = append(due[g.UUID], func() error { return h.growPool(ctx, g.UUID, lv.Name) })
			}
		}
	}
	for group, uuids := range h.emptyFor(s) {
		for _, uuid := range uuids {
			due[group] = append(due[group], func() error { return h.removePool(ctx, group, uuid) })
		}
	}
	return eachAtOnce(slices.Sorted(maps.Keys(due)), func(group string) error { return h.tendGroup(ctx, group, due[group]) })
}

// tendGroup does what the pools of one group need, until the group is found to hang: the command goes on, and Close waits for it.
func (h *Host) tendGroup(ctx context.Context, group string, work []func() error) error {
	done := make(chan error, 1)
	h.background.Go(func() {
		var errs []error
		for _, do := range work {
			errs = append(errs, do())
		}
		done <- errors.Join(errs...)
	})
	waiting, stop := h.hangs.until(ctx, group)
	defer stop()
	select {
	case err := <-done:
		return err
	case <-waiting.Done():
		return Errorf(KindBusy, "the work on thin pools is not waited for: %w", context.Cause(waiting))
	}
}

// needOf asks the kernel how full a pool is, and decides what it needs.
func (h *Host) needOf(g Group, name string) (poolNeed, pool, error) {
	lv := g.named(name)
	if lv == nil || lv.Thin == nil {
		return poolNeed{}, pool{}, nil
	}
	s, err := h.poolStatus(g, *lv)
	if err != nil || s == nil {
		return poolNeed{}, pool{}, err
	}
	own := *lv.Thin
	own.Crowded = "" // it may promise no more; that is no reason not to enlarge it
	g.LVs = slices.Clone(g.LVs)
	g.named(name).Thin = &own
	p, err := poolOf(g, Class{Pool: name})
	if err != nil {
		return poolNeed{}, pool{}, err
	}
	return p.due(*s, policyOf(h.declared(), g.Name, name)), p, nil
}

// growPool enlarges one pool under its group's lock, by what it needs then.
func (h *Host) growPool(ctx context.Context, group, name string) error {
	s, unlock, err := h.locked(ctx, group, "enlarging the thin pool "+name, h.readRaw)
	if err != nil {
		return err
	}
	defer unlock()
	g, err := s.group(group)
	if err != nil {
		return err
	}
	if err := unchangeable(s, g); err != nil {
		return err
	}
	need, p, err := h.needOf(g, name)
	if err != nil || need == (poolNeed{}) {
		return err
	}
	if need.refresh {
		return h.refresh(ctx, g, *g.named(name))
	}
	return h.enlarge(ctx, p, need)
}

// enlarge runs the commands and looks what has come of them. The group's lock must be held.
func (h *Host) enlarge(ctx context.Context, p pool, need poolNeed) error {
	steps, err := enlargeSteps(p, need)
	if err != nil {
		return err
	}
	failure := h.runOver(ctx, p.group, p.group.partsOf(p.name), steps)
	s, err := h.readRaw(ctx)
	if err != nil {
		return err
	}
	g, err := s.group(p.group.UUID)
	if err != nil {
		return err
	}
	now, err := poolOf(g, Class{Pool: p.name})
	if err != nil {
		return err
	}
	if !now.made {
		return Errorf(KindInternal, "the thin pool %s/%s went away while it was being enlarged: %w", g.Name, p.name, orNothing(failure))
	}
	pool := g.named(p.name)
	if h.partSuspended(g, *pool) {
		failure = errors.Join(failure, h.refresh(ctx, g, *pool))
	}
	if now.data < need.data || now.metadata < p.metadata+need.metadata {
		return Errorf(KindInternal, "the thin pool %s/%s could not be enlarged: %w", g.Name, p.name, orNothing(failure))
	}
	h.grown.add(pool.UUID)
	h.log.Info("a thin pool was enlarged", "vg", g.Name, "pool", p.name, "data", g.bytes(now.data), "metadata", g.bytes(now.metadata), "free", g.bytes(g.free()))
	return h.flush(g)
}

// poolStatus asks the kernel about a pool; nil while it is not active.
func (h *Host) poolStatus(g Group, lv LV) (*poolStatus, error) {
	path, active, err := h.machine.Kernel.Device(dmUUID(g.UUID, lv.UUID) + "-tpool")
	if err != nil || !active {
		return nil, err
	}
	return status(&checkup{host: h, paths: map[string]string{dmUUID(g.UUID, lv.UUID) + "-tpool": path}}, dmUUID(g.UUID, lv.UUID)+"-tpool", "thin-pool", parsePool)
}

// markCrowded answers the group with each of its pools that may promise nothing more marked so.
func (h *Host) markCrowded(g Group) Group {
	why := map[string]string{}
	for _, lv := range g.LVs {
		if lv.Thin == nil {
			continue
		}
		s, err := h.poolStatus(g, lv)
		if err != nil || s == nil {
			continue // nothing is written to a pool that is not active
		}
		if p, err := poolOf(g, Class{Pool: lv.Name}); err == nil {
			if text := p.crowded(*s); text != "" {
				why[lv.Name] = text
			}
		}
	}
	if len(why) == 0 {
		return g
	}
	g.LVs = slices.Clone(g.LVs)
	for name := range maps.Keys(why) {
		marked := *g.named(name).Thin
		marked.Crowded = why[name]
		g.named(name).Thin = &marked
	}
	return g
}
