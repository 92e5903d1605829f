package recovery

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// resume resumes the suspended devices of the cluster's volumes in a group, with their legs and pools: I/O to them waits. An
// LVM command that was killed between suspend and resume leaves a device suspended.
func (r *Recovery) resume(ctx context.Context, g lvm.Group) {
	if len(r.engine.SuspendedIn(g)) == 0 {
		return
	}
	unlock, err := r.engine.Locks.Acquire(ctx, g.UUID, "resuming suspended volumes")
	if err != nil {
		r.engine.Log.Error("cannot resume suspended volumes", "vg", g.Name, "error", err)
		return
	}
	defer unlock()
	for _, lv := range r.engine.InUse(g) {
		if !r.engine.HasSuspendedComponent(g, lv) {
			continue
		}
		if err := r.engine.Refresh(ctx, g, lv); err != nil {
			r.engine.Log.Error("cannot resume a suspended volume; I/O to it waits", "vg", g.Name, "lv", lv.Name, "error", err)
		} else {
			r.engine.Log.Warn("resumed a suspended volume", "vg", g.Name, "lv", lv.Name)
		}
	}
}

// clearInactiveTables clears the inactive tables of thin pools. If an extension was killed before its commit, such a table is
// larger than the device under it, and LVM's next command would fail. A thin volume keeps its inactive table: the kernel counts
// the suspends of a pool by tables, and would never resume the volume (pool_suspend_active_thins in drivers/md/dm-thin.c). An
// admin's command may be about to resume the table that it loaded (without it, writes would bypass a pvmove): LVM's lock keeps the
// driver away from it.
func (r *Recovery) clearInactiveTables(ctx context.Context, g lvm.Group) {
	waiting, cancel := context.WithTimeout(ctx, oplock.LockPatience)
	defer cancel()
	unlock, err := oplock.LockVG(waiting, r.engine.Config.LockDir, g.Name)
	if err != nil {
		r.engine.Log.Warn("not checking for inactive tables that an interrupted command left", "vg", g.Name, "error", err)
		return
	}
	defer unlock()
	for _, pool := range r.engine.InUse(g) {
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
