package lvm

import (
	"context"
	"fmt"
)

// declared are the declarations that Prepare was given last, with their defaults.
func (h *Host) declared() []Declaration {
	if list := h.declarations.Load(); list != nil {
		return *list
	}
	return nil
}

// pool makes the group's thin pool, or enlarges it, if a size is declared for it.
func (p *preparing) pool(ctx context.Context, d Declaration, here *Group, r GroupReport) GroupReport {
	if d.Pool.Size == 0 {
		return r
	}
	class := Class{Pool: d.Pool.Name, Layout: LayoutThin, Overprovision: 100}
	if here != nil {
		if lv := here.named(class.Pool); lv != nil && lv.Thin != nil && (here.bytes(lv.Extents) >= d.Pool.Size || !isPool(*lv)) {
			return r
		}
	}
	switch {
	case p.DryRun:
		r.Text += fmt.Sprintf("; its thin pool %s would get %s", class.Pool, d.Pool.Size)
		r.Changed = true
	case p.host.cfg.Cluster == "":
		r.Text += fmt.Sprintf("; the driver makes its thin pool %s when it starts", class.Pool)
	default:
		if err := p.makePool(ctx, here.UUID, class, d.Pool.Size); err != nil {
			r.Err = Errorf(KindOf(err), "its thin pool %s with %s: %w", class.Pool, d.Pool.Size, err)
			return r
		}
		r.Text += fmt.Sprintf("; its thin pool %s has %s now", class.Pool, d.Pool.Size)
		r.Changed = true
	}
	return r
}

func (p *preparing) makePool(ctx context.Context, group string, class Class, size Bytes) error {
	s, unlock, err := p.host.locked(ctx, group, "making the thin pool "+class.Pool, p.host.readRaw)
	if err != nil {
		return err
	}
	defer unlock()
	g, err := s.group(group)
	if err != nil {
		return err
	}
	if err := obstacle(s, g, class); err != nil {
		return err
	}
	here, err := poolOf(g, class)
	if err != nil {
		return err
	}
	want := g.round(size)
	if want > here.data+here.room() {
		return Errorf(KindInsufficientCapacity, "volume group %s has room for %s of it", g.Name, g.bytes(max(0, here.data+here.room())))
	}
	if here.made {
		return p.host.enlarge(ctx, here, poolNeed{data: want})
	}
	growth := here.to(want, p.host.cfg.Cluster)
	steps, err := poolSteps(growth)
	if err != nil {
		return err
	}
	failure := p.host.runOver(ctx, g, nil, steps)
	if s, err = p.host.readRaw(ctx); err != nil {
		return err
	}
	if g, err = s.group(group); err != nil {
		return err
	}
	if now, err := poolOf(g, class); err != nil || !now.made || now.data < want {
		return Errorf(KindInternal, "it could not be made: %w", orNothing(failure))
	}
	p.host.log.Info("a thin pool was made", "vg", g.Name, "pool", class.Pool, "data", size)
	return p.host.flush(g)
}
