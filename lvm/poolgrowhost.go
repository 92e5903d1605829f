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

// TendPools enlarges the thin pools that fill up, as their policy says. One that needs nothing costs a question to the kernel;
// no process. The error joins those of the pools that could not be enlarged.
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
	var errs []error
	for _, g := range s.Groups {
		for _, lv := range g.LVs {
			if lv.Thin == nil || !isPool(lv) {
				continue
			}
			if need, _, err := h.needOf(g, lv.Name); err == nil && need != (poolNeed{}) {
				errs = append(errs, h.growPool(ctx, g.UUID, lv.Name))
			}
		}
	}
	return errors.Join(errs...)
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
	return h.enlarge(ctx, p, need)
}

// enlarge runs the commands and looks what has come of them. The group's lock must be held.
func (h *Host) enlarge(ctx context.Context, p pool, need poolNeed) error {
	steps, err := need.steps(p)
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
