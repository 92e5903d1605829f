package prepare

import (
	"context"
	"fmt"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

// pool creates or extends the group's thin pool if its size is declared.
func (p *preparing) pool(ctx context.Context, d lvm.Declaration, here *lvm.Group, r lvm.GroupReport) lvm.GroupReport {
	if d.Pool.Size == 0 {
		return r
	}
	class := lvm.Class{Pool: d.Pool.Name, Layout: lvm.LayoutThin, Overprovision: 100}
	if here != nil {
		if lv := here.FindLV(class.Pool); lv != nil && lv.Thin != nil && (here.Bytes(lv.Extents) >= d.Pool.Size || !lv.IsManagedPool()) {
			return r
		}
	}
	switch {
	case p.DryRun:
		r.Text += fmt.Sprintf("; its thin pool %s would get %s", class.Pool, d.Pool.Size)
		r.Changed = true
	case p.engine.Config.Cluster == "":
		r.Text += fmt.Sprintf("; the driver creates its thin pool %s when it starts", class.Pool)
	default:
		if err := p.makePool(ctx, here.UUID, class, d.Pool.Size); err != nil {
			r.Err = lvm.Errorf(lvm.KindOf(err), "its thin pool %s with %s: %w", class.Pool, d.Pool.Size, err)
			return r
		}
		r.Text += fmt.Sprintf("; its thin pool %s has %s now", class.Pool, d.Pool.Size)
		r.Changed = true
	}
	return r
}

func (p *preparing) makePool(ctx context.Context, group lvm.VGUUID, class lvm.Class, size lvm.Bytes) error {
	s, unlock, err := p.engine.Locked(ctx, group, "creating the thin pool "+class.Pool, p.engine.ReadDisks)
	if err != nil {
		return err
	}
	defer unlock()
	g, err := s.FindGroup(group)
	if err != nil {
		return err
	}
	if err := alloc.CheckAllocatable(s, g, class); err != nil {
		return err
	}
	here, err := alloc.PoolOf(g, class)
	if err != nil {
		return err
	}
	want := g.ExtentsFor(size)
	if want > here.Data+here.Growable() {
		return lvm.Errorf(lvm.KindInsufficientCapacity, "volume group %s has free extents for only %s of it", g.Name, g.Bytes(max(0, here.Data+here.Growable())))
	}
	if err := p.engine.CheckTransaction(g, class.Pool); err != nil {
		return err
	}
	if here.Made {
		return p.pools.RunPoolExtension(ctx, here, alloc.PoolNeed{Data: want})
	}
	growth := here.To(want, p.engine.Config.Cluster)
	steps, err := lvmcmd.PoolSteps(growth)
	if err != nil {
		return err
	}
	done, err := p.engine.Commit(ctx, engine.Change{Group: g, Steps: steps})
	if err != nil {
		return err
	}
	if g, err = done.Group(); err != nil {
		return err
	}
	if now, err := alloc.PoolOf(g, class); err != nil || !now.Made || now.Data < want {
		return lvm.Errorf(lvm.KindInternal, "cannot create it: %w", done.Cause())
	}
	p.engine.Log.Info("created a thin pool", "vg", g.Name, "pool", class.Pool, "data", size)
	return p.engine.Flush(g)
}
