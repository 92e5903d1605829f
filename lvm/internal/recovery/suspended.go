package recovery

import (
	"context"
	"errors"
	"sync"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// Resume resumes the suspended devices of a cluster's volumes, before Start: I/O to them waits. It returns when each group has been
// tried once, or that takes too long. What it cannot resume it retries until ctx ends.
func (r *Recovery) Resume(ctx context.Context, s lvm.State, cluster string) {
	var tried sync.WaitGroup
	for _, g := range s.Groups {
		if len(r.engine.SuspendedIn(g)) == 0 || r.engine.OtherNodeReason(g) != "" {
			continue
		}
		tried.Add(1)
		r.tasks.Fork(func(closing context.Context) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(closing, cancel)()
			r.whenPossible(ctx, g, tried.Done, func(ctx context.Context, now lvm.Group) error { return r.resume(ctx, now, cluster) })
		})
	}
	r.awaitFirst(ctx, &tried)
}

// resume resumes the suspended devices of a cluster's volumes in a group, with their legs and pools: I/O to them waits. An
// LVM command that was killed between suspend and resume leaves a device suspended. The error joins those of the volumes.
func (r *Recovery) resume(ctx context.Context, g lvm.Group, cluster string) (suspended error) {
	r.clearInactiveTables(ctx, g, cluster)
	if len(r.engine.SuspendedIn(g)) == 0 {
		return nil
	}
	unlock, err := r.engine.Locks.Acquire(ctx, g.UUID, "resuming suspended volumes")
	if err != nil {
		return err
	}
	defer unlock()
	for _, lv := range r.engine.InUse(g, cluster) {
		if !r.engine.HasSuspendedComponent(g, lv) {
			continue
		}
		if err := r.engine.Refresh(ctx, g, lv); err != nil {
			r.engine.Log.Error("cannot resume a suspended volume; I/O to it waits", "vg", g.Name, "lv", lv.Name, "error", err)
			suspended = errors.Join(suspended, err)
		} else {
			r.engine.Log.Warn("resumed a suspended volume", "vg", g.Name, "lv", lv.Name)
		}
	}
	return suspended
}

// clearInactiveTables clears the inactive tables of thin pools. If an extension was killed before its commit, such a table is
// larger than the device under it, and LVM's next command would fail. A thin volume keeps its inactive table: the kernel counts
// the suspends of a pool by tables, and would never resume the volume (pool_suspend_active_thins in drivers/md/dm-thin.c). An
// admin's command may be about to resume the table that it loaded (without it, writes would bypass a pvmove): LVM's lock keeps the
// driver away from it.
func (r *Recovery) clearInactiveTables(ctx context.Context, g lvm.Group, cluster string) {
	waiting, cancel := context.WithTimeout(ctx, oplock.LockPatience)
	defer cancel()
	unlock, err := oplock.LockVG(waiting, r.engine.Config.LockDir, g.Name)
	if err != nil {
		r.engine.Log.Warn("not checking for inactive tables that an interrupted command left", "vg", g.Name, "error", err)
		return
	}
	defer unlock()
	for _, pool := range r.engine.InUse(g, cluster) {
		if pool.Thin == nil {
			continue
		}
		for _, part := range lvm.Components(g, pool) {
			for _, layer := range []string{"", "-tmeta", "-tdata", "-tpool", "-pool"} {
				was, err := r.engine.Machine.Kernel.ClearInactiveTable(lvm.DeviceUUID(g.UUID, part.UUID) + layer)
				if err != nil {
					r.engine.Log.Warn("cannot clear an inactive table that an interrupted command left", "vg", g.Name, "lv", part.Name, "error", err)
				} else if was {
					r.engine.Log.Warn("cleared an inactive table that an interrupted command left", "vg", g.Name, "lv", part.Name)
				}
			}
		}
	}
}
