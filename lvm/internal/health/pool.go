package health

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/report"
)

// From these percentages on, a pool is nearly full. Full metadata is worse than full data: only an offline pool can be
// repaired.
const (
	poolLateData     = 90 // a pool with an autoextend threshold reaches this only if its extension fails
	poolLateMetadata = 80
)

// checkThin adds the conditions of a volume's pool: what makes writes fail, for each volume; a nearly full pool once.
func (c *groupCheck) checkThin(ctx context.Context, p checkedVolume) {
	s, known := c.pools[p.lv.Pool]
	if !known {
		s = c.checkPool(ctx, p.lv.Pool)
		c.pools[p.lv.Pool] = s
	}
	if s == nil {
		return
	}
	switch name := string(c.group.Name) + "/" + p.lv.Pool; {
	case s.IsFailed():
		c.addPool(lvm.ConditionThinPoolFailed, p.volume, p.lv.Pool, "its thin pool %s takes no writes (%s): %s", name, s.FailureReason(), failedRemedy(c.group, p.lv.Pool, *s))
	case s.IsFull():
		c.addPool(lvm.ConditionThinPoolFull, p.volume, p.lv.Pool, "its thin pool %s is full (data %s, metadata %s): writes fail; %s",
			name, lvm.Percent(s.DataUsed, s.DataTotal), lvm.Percent(s.MetadataUsed, s.MetadataTotal), poolRemedy(c.group, p.lv.Pool, s.Mode == "ro"))
	}
}

// failedRemedy says how a pool takes writes again.
func failedRemedy(g lvm.Group, pool string, s lvm.PoolStatus) string {
	if lv := g.FindLV(pool); lv != nil && lv.Thin != nil && s.IsMismatched(*lv.Thin) {
		return "end none of its pods before the metadata of the pool's transaction is restored"
	}
	return fmt.Sprintf("end all pods with volumes of the pool; when the next one starts, LVM checks the pool, and it takes writes again if its metadata is sound. Otherwise the pool stays inactive: repair it with lvconvert --repair %s/%s", g.Name, pool)
}

// checkPool returns a pool's status, and adds a condition if the pool is nearly full, and one if LVM's metadata is not of this state of the
// pool.
func (c *groupCheck) checkPool(ctx context.Context, name string) *lvm.PoolStatus {
	lv := c.group.FindLV(name)
	if lv == nil || lv.Thin == nil {
		return nil
	}
	s, err := c.poolStatus(*lv)
	if err != nil || s == nil {
		return nil
	}
	c.checkTransaction(ctx, *lv, *s)
	if s.IsFailed() || s.IsFull() {
		return s
	}
	m := poolEntry(c.group, *lv, s)
	near := m.Provisioned > m.Size && lvm.IsAbove(s.DataUsed, s.DataTotal, poolLateData) || lvm.IsAbove(s.MetadataUsed, s.MetadataTotal, poolLateMetadata)
	switch {
	case lv.Thin.OvercommitReason != "":
		c.addPool(lvm.ConditionThinPoolNearlyFull, lvm.Volume{}, name, "the driver creates no volume or snapshot: %s", lv.Thin.OvercommitReason)
	case near: // the driver should have extended it before
		c.addPool(lvm.ConditionThinPoolNearlyFull, lvm.Volume{}, name, "thin pool %s/%s is nearly full: data %s of %s, metadata %s of %s, %s provisioned; %s",
			c.group.Name, name, lvm.Percent(s.DataUsed, s.DataTotal), m.Size, lvm.Percent(s.MetadataUsed, s.MetadataTotal), m.MetadataSize, m.Provisioned, poolRemedy(c.group, name, false))
	}
	return s
}

func (c *groupCheck) poolStatus(pool lvm.LV) (*lvm.PoolStatus, error) {
	return status(c, lvm.DeviceUUID(c.group.UUID, pool.UUID)+"-tpool", "thin-pool", dm.ParsePool)
}

// poolRemedy says how a pool gets space. A group without free extents needs a disk first. A read-only pool, whose metadata is full, deletes nothing.
func poolRemedy(g lvm.Group, pool string, readOnly bool) string {
	disk := ""
	if g.FreeExtents() == 0 {
		disk = fmt.Sprintf("add a disk to volume group %s, which has no extent to allocate (vgextend %s DISK), and ", g.Name, g.Name)
	}
	if readOnly {
		return fmt.Sprintf("%sextend its metadata (lvextend --poolmetadatasize +SIZE %s/%s)", disk, g.Name, pool)
	}
	return fmt.Sprintf("delete snapshots or volumes, or %[3]sextend the pool (lvextend -L+SIZE %[1]s/%[2]s; its metadata: lvextend --poolmetadatasize +SIZE %[1]s/%[2]s)", g.Name, pool, disk)
}

// poolEntry describes a pool; s is nil while the pool is not active.
func poolEntry(g lvm.Group, pool lvm.LV, s *lvm.PoolStatus) report.Pool {
	m := report.Pool{Name: pool.Name, Size: g.Bytes(pool.Extents), Zero: pool.Thin.Zero, State: stateOf(s), Provisioned: alloc.Provisioned(g, pool),
		TransactionID: pool.Thin.TransactionID}
	if metadata := g.FindLV(pool.Thin.Metadata); metadata != nil {
		m.MetadataSize = g.Bytes(metadata.Extents)
	}
	if s != nil {
		m.Used = lvm.Bytes(s.DataUsed) * pool.Thin.ChunkSize
		m.MetadataUsed = lvm.Bytes(s.MetadataUsed) * alloc.PoolMetadataBlock
		if !s.Failed {
			m.KernelTransactionID = &s.TransactionID
		}
	}
	return m
}

// stateOf says whether a pool with this status accepts writes.
func stateOf(s *lvm.PoolStatus) report.PoolState {
	switch {
	case s == nil:
		return report.PoolInactive
	case s.IsFailed():
		return report.PoolFailed
	case s.IsFull():
		return report.PoolFull
	}
	return report.PoolWorks
}

// poolEntries describes the pools of the group. One without a readable status counts as inactive.
func (c *groupCheck) poolEntries(extensionsOf func(uuid string) int) (entries []report.Pool) {
	for _, lv := range c.group.LVs {
		if lv.Thin == nil {
			continue
		}
		s, err := c.poolStatus(lv)
		if err != nil {
			c.engine.Log.Warn("cannot read the status of a thin pool", "vg", c.group.Name, "pool", lv.Name, "error", err)
		}
		e := poolEntry(c.group, lv, s)
		e.Extensions = extensionsOf(lv.UUID)
		entries = append(entries, e)
	}
	return entries
}

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
