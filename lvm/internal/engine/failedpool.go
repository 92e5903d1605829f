package engine

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
)

// The kernel makes a thin pool read-only, or lets all its I/O fail, after a failed write of its metadata, and keeps it so for as long as the pool
// is active, although its disks may work again. LVM checks a pool before it activates one (lvm.conf(5), thin_check_executable). If the check fails,
// the pool stays inactive until an admin repairs it, also one that could still be read.

// failedPool returns the status of a thin volume's pool if the pool takes no writes, and LVM can activate it again as far as the driver knows;
// else nil. A move only reads its source.
func (e *Engine) failedPool(g lvm.Group, lv lvm.LV, v lvm.Volume) *lvm.PoolStatus {
	pool := g.FindLV(lv.Pool)
	if v.State == lvm.StateMoving || pool == nil || pool.Thin == nil || activatable(g, lv) != nil || alloc.IsMoving(g, lv) {
		return nil
	}
	s, err := e.PoolStatus(g, *pool)
	if err != nil || s == nil || !s.IsFailed() || s.IsMismatched(*pool.Thin) {
		return nil
	}
	return s
}

// reactivateFailedPool activates the thin pool of a volume again, with its active volumes, if the pool takes no writes and none of them is in use. An
// error of LVM is only logged: the caller activates the volume, and returns the error if LVM still refuses. The caller holds the group's lock.
func (e *Engine) reactivateFailedPool(ctx context.Context, g lvm.Group, lv lvm.LV, v lvm.Volume) {
	failed := e.failedPool(g, lv, v)
	if failed == nil {
		return
	}
	log := e.Log.With("vg", g.Name, "pool", lv.Pool, "reason", failed.FailureReason())
	err := e.reactivate(ctx, g, lv)
	switch {
	case lvm.KindOf(err) == lvm.KindInUse:
		log.Warn("a thin pool takes no writes; the driver activates it again when a volume of it is staged while none is in use", "error", err)
	case e.failedPool(g, lv, v) == nil:
		log.Warn("the driver deactivated a thin pool that took no writes, so that LVM checks it")
	default:
		log.Error("a thin pool still takes no writes after the driver tried to activate it again", "error", err)
	}
}
