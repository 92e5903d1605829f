package engine

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
)

// The kernel makes a thin pool read-only, or lets all its I/O fail, after a failed write of its metadata, and keeps it so for as long as the pool
// is active, although its disks may work again. LVM checks a pool before it activates one (lvm.conf(5), thin_check_executable).

// failedPool returns the status of a volume's thin pool if the pool takes no writes, and a new activation cannot lose anything; else nil.
func (e *Engine) failedPool(g lvm.Group, lv lvm.LV) *lvm.PoolStatus {
	pool := g.FindLV(lv.Pool)
	if lv.Pool == "" || pool == nil || pool.Thin == nil {
		return nil
	}
	s, err := e.PoolStatus(g, *pool)
	if err != nil || s == nil || !s.IsFailed() || s.IsMismatched(*pool.Thin) || activatable(g, lv) != nil {
		return nil // LVM would not activate the volumes of a pool that is at another transaction, or whose disks are away
	}
	return s
}

// reactivateFailedPool deactivates the thin pool of a volume if the pool takes no writes, and activates its volumes that were active again. It changes
// nothing while one of them is in use. What LVM refuses here, it refuses again when the caller activates the volume. The caller holds the group's
// lock.
func (e *Engine) reactivateFailedPool(ctx context.Context, g lvm.Group, lv lvm.LV) error {
	failed := e.failedPool(g, lv)
	if failed == nil {
		return nil
	}
	log := e.Log.With("vg", g.Name, "pool", lv.Pool, "reason", failed.FailureReason())
	steps, err := e.reactivation(ctx, g, lv)
	if lvm.KindOf(err) == lvm.KindInUse {
		log.Warn("a thin pool takes no writes; the driver activates it again once its volumes are unused", "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	if err := e.Run(ctx, g, steps); err != nil {
		log.Error("LVM does not activate a thin pool again that takes no writes", "error", err)
		return nil
	}
	log.Warn("the driver deactivated a thin pool that took no writes, so that LVM checks it")
	return nil
}
