package engine

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

// LVM sends a thin pool messages: it commits them with its metadata, sends them, lets the pool count them, and commits their
// removal. If a command is interrupted before its last commit, the next lvcreate sends what the pool did not count, and drops
// all of them. lvremove drops a message about the volume that it removes. But it appends its message about another volume to
// the pending ones (2.03.16, 2.03.31: attach_pool_message). If the pool has counted those, LVM takes the new one for counted
// too, and the pool keeps the removed volume's blocks for ever. So before it removes a volume, and at start, the driver makes
// LVM drop the messages of its pools: it creates a volume and removes it again.

// Unflushed reports whether a logical volume is a thin pool of the driver with pending messages.
func Unflushed(lv lvm.LV) bool {
	return lv.Thin != nil && len(lv.Thin.Messages) > 0 && lv.IsManagedPool()
}

// flushBefore flushes the pool of a thin volume before its removal, and returns the group as it then is. It refuses (lvm.KindBusy) if LVM's
// metadata is of another state of the pool: lvremove would raise LVM's transaction id, perhaps to the pool's, and LVM would take both for
// the same although they differ in their volumes. The caller holds the group's lock.
func (e *Engine) flushBefore(ctx context.Context, g lvm.Group, lv lvm.LV) (lvm.Group, error) {
	pool := g.FindLV(lv.Pool)
	if lv.Pool != "" && pool != nil {
		if differ, err := e.mismatch(g, *pool); err != nil || differ != "" {
			return g, cmp.Or[error](err, lvm.Errorf(lvm.KindBusy, "the driver does not remove %s/%s: %s", g.Name, lv.Name, differ))
		}
	}
	if lv.Pool == "" || pool == nil || !Unflushed(*pool) || g.HasPendingCreate(lv) {
		return g, nil
	}
	return e.FlushPool(ctx, g, *pool)
}

// mismatch says that LVM's metadata is of another state of a pool, and what to do; "": it is not, or the pool is not active.
func (e *Engine) mismatch(g lvm.Group, pool lvm.LV) (string, error) {
	if pool.Thin == nil {
		return "", nil
	}
	s, err := e.PoolStatus(g, pool)
	if err != nil || s == nil || !s.IsMismatched(*pool.Thin) {
		return "", err
	}
	return fmt.Sprintf("LVM's metadata has transaction_id = %[1]d for thin pool %[2]s/%[3]s, and the pool itself has %[4]d. Restore metadata with transaction_id = %[4]d (docs/howto/replace-disk.md)",
		pool.Thin.TransactionID, g.Name, pool.Name, s.TransactionID), nil
}

// CheckTransaction refuses (lvm.KindInsufficientCapacity) to create in a pool, or to extend it or a volume of it, while LVM's metadata is of another
// state of it. LVM may load a table with other extents than the pool's. If the pool's own device is active, LVM compares both only after its commit,
// and could give a new volume the blocks of one that the metadata lacks. The caller holds the group's lock.
func (e *Engine) CheckTransaction(g lvm.Group, name string) error {
	pool := g.FindLV(name)
	if pool == nil {
		return nil
	}
	differ, err := e.mismatch(g, *pool)
	if err != nil || differ == "" {
		return err
	}
	return lvm.Errorf(lvm.KindInsufficientCapacity, "the driver changes nothing in the thin pool %s/%s: %s", g.Name, name, differ)
}

// CheckEmpty refuses (lvm.KindBusy) to remove a pool without volumes unless it is active, and LVM's metadata is of its present state: of another
// one, the pool may have volumes that the metadata lacks. LVM activates no pool of another state. The caller holds the group's lock.
func (e *Engine) CheckEmpty(ctx context.Context, g lvm.Group, pool lvm.LV) error {
	t, err := lvmcmd.TargetOf(g.Name, pool.Name)
	if err != nil {
		return err
	}
	s, err := e.PoolStatus(g, pool)
	if err == nil && s == nil {
		failure := e.runAfterCleanup(ctx, Change{Group: g, Legs: lvm.Components(g, pool), Steps: []lvmcmd.Step{{Argv: lvmcmd.ActivateArgs(g, t)}}})
		if s, err = e.PoolStatus(g, pool); err == nil && s == nil {
			return lvm.Errorf(lvm.KindBusy, "the driver does not remove the empty thin pool %s, which it cannot activate to see whether it is empty: %w", t, OrNoEffect(failure))
		}
	}
	differ := ""
	if err == nil {
		differ, err = e.mismatch(g, pool)
	}
	if err != nil || differ == "" {
		return err
	}
	return lvm.Errorf(lvm.KindBusy, "the driver does not remove the thin pool %s: %s", t, differ)
}

// FlushPool makes LVM drop its messages for a pool. The caller holds the group's lock.
func (e *Engine) FlushPool(ctx context.Context, g lvm.Group, pool lvm.LV) (lvm.Group, error) {
	if differ, err := e.mismatch(g, pool); err != nil || differ != "" {
		return g, cmp.Or[error](err, lvm.Errorf(lvm.KindBusy, "the driver changes nothing in a thin pool: %s", differ))
	}
	g, err := e.removeFlush(ctx, g)
	if err != nil {
		return g, err
	}
	done, err := e.Commit(ctx, Change{Group: g, Legs: lvm.Components(g, pool), Steps: []lvmcmd.Step{{Argv: lvmcmd.FlushArgs(g, pool, e.Config.Cluster)}}})
	if err == nil {
		g, err = done.Group()
	}
	if err == nil {
		g, err = e.removeFlush(ctx, g)
	}
	if err != nil {
		return g, err
	}
	if now := g.FindLV(pool.Name); now != nil && Unflushed(*now) {
		return g, lvm.Errorf(lvm.KindBusy, "LVM cannot flush the messages that an interrupted command left for the thin pool %s/%s (%s). Until LVM can, the driver removes no volume from the pool, because LVM would not free the volume's blocks: %w",
			g.Name, pool.Name, strings.Join(now.Thin.Messages, ", "), done.Cause())
	}
	e.Log.Info("flushed the messages that an interrupted command left for a thin pool", "vg", g.Name, "pool", pool.Name, "messages", pool.Thin.Messages)
	return g, nil
}

// removeFlush removes the volume of FlushArgs, if it exists.
func (e *Engine) removeFlush(ctx context.Context, g lvm.Group) (lvm.Group, error) {
	lv := g.FindLV(lvmcmd.FlushName)
	if lv == nil {
		return g, nil
	}
	sn, is := lv.AsSnapshot()
	if !is || sn.State != lvm.StateCreating {
		return g, lvm.Errorf(lvm.KindBusy, "%s/%s has a name that the driver needs: rename or remove it", g.Name, lvmcmd.FlushName)
	}
	if err := e.removeFrom(ctx, g, sn.ID, sn.UUID, lvm.StateCreating); err != nil {
		return g, err
	}
	s, err := e.ReadDisks(ctx)
	if err != nil {
		return g, err
	}
	return s.FindGroup(g.UUID)
}
