package health

import (
	"context"
	"slices"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// transactionPause is how long two transaction ids must differ: longer than a change of a pool takes.
const transactionPause = time.Second

// checkTransaction adds that LVM's metadata and an active pool stay at different transactions. LVM starts such a pool no more (lvm2,
// libdm-deptree.c, _node_send_messages).
func (c *groupCheck) checkTransaction(ctx context.Context, pool lvm.LV, s lvm.PoolStatus) {
	if !s.IsMismatched(*pool.Thin) {
		return
	}
	select {
	case <-ctx.Done():
		return
	case <-time.After(transactionPause):
	}
	if !c.staysMismatched(ctx, pool, s) {
		return
	}
	which := "older than the pool, as after a restore"
	if pool.Thin.TransactionID > s.TransactionID {
		which = "newer than the pool"
	}
	c.addPool(lvm.ConditionThinPoolTransactionMismatch, lvm.Volume{}, pool.Name,
		"LVM's metadata has transaction_id = %[1]d for thin pool %[2]s/%[3]s, and the pool itself has %[4]d: the metadata is %[5]s. LVM creates no volume or snapshot in it, and the driver removes none. Once the pool is inactive, none of its volumes starts: do not restart the node or end pods that use it. Restore metadata with transaction_id = %[4]d (vgcfgrestore --force -f FILE %[2]s); docs/howto/replace-disk.md says where to find it",
		pool.Thin.TransactionID, c.group.Name, pool.Name, s.TransactionID, which)
}

// staysMismatched reports whether metadata and pool, read again, are unchanged.
func (c *groupCheck) staysMismatched(ctx context.Context, pool lvm.LV, was lvm.PoolStatus) bool {
	s, err := c.poolStatus(pool)
	if err != nil || s == nil || s.Failed || s.TransactionID != was.TransactionID {
		return false
	}
	state, err := c.engine.CachedState(ctx)
	if err != nil {
		return false
	}
	i := slices.IndexFunc(state.Groups, func(g lvm.Group) bool { return g.UUID == c.group.UUID })
	if i < 0 {
		return false
	}
	lv := state.Groups[i].FindLV(pool.Name)
	return lv != nil && lv.UUID == pool.UUID && lv.Thin != nil && lv.Thin.TransactionID == pool.Thin.TransactionID
}
