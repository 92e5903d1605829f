package host

import (
	"context"
	"slices"
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

// unflushed reports whether a logical volume is a thin pool of the driver with pending messages.
func unflushed(lv lvm.LV) bool { return lv.Thin != nil && len(lv.Thin.Messages) > 0 && lvm.IsPool(lv) }

// flushPools flushes the pools of a group at start.
func (h *Host) flushPools(ctx context.Context, g lvm.Group) {
	if !slices.ContainsFunc(g.LVs, unflushed) {
		return
	}
	s, unlock, err := h.locked(ctx, g.UUID, "flushing thin pool messages", h.readDisks)
	if err != nil {
		return // the group disappeared, or the driver stops
	}
	defer unlock()
	if g, err = s.FindGroup(g.UUID); err != nil || lvm.CheckWritable(s, g) != nil {
		return
	}
	for _, pool := range g.LVs {
		if !unflushed(pool) {
			continue
		}
		if g, err = h.flushPool(ctx, g, pool); err != nil && ctx.Err() == nil {
			h.log.Warn("cannot flush the messages that an interrupted command left for a thin pool; the driver retries before it removes a volume of the pool", "error", err)
		}
	}
}

// flushBefore flushes the pool of a thin volume before its removal, and returns the group as it then is. The caller holds the
// group's lock.
func (h *Host) flushBefore(ctx context.Context, g lvm.Group, lv lvm.LV) (lvm.Group, error) {
	pool := g.FindLV(lv.Pool)
	if lv.Pool == "" || pool == nil || !unflushed(*pool) || g.HasPendingCreate(lv) {
		return g, nil
	}
	return h.flushPool(ctx, g, *pool)
}

// flushPool makes LVM drop its messages for a pool. The caller holds the group's lock.
func (h *Host) flushPool(ctx context.Context, g lvm.Group, pool lvm.LV) (lvm.Group, error) {
	g, err := h.removeFlush(ctx, g)
	if err != nil {
		return g, err
	}
	done, err := h.commit(ctx, change{group: g, legs: lvm.Components(g, pool), steps: []lvmcmd.Step{{Argv: lvmcmd.FlushArgs(g, pool, h.cfg.Cluster)}}})
	if err == nil {
		g, err = done.group()
	}
	if err == nil {
		g, err = h.removeFlush(ctx, g)
	}
	if err != nil {
		return g, err
	}
	if now := g.FindLV(pool.Name); now != nil && unflushed(*now) {
		return g, lvm.Errorf(lvm.KindBusy, "LVM cannot flush the messages that an interrupted command left for the thin pool %s/%s (%s); to remove a volume now would leak its blocks: %w",
			g.Name, pool.Name, strings.Join(now.Thin.Messages, ", "), done.cause())
	}
	h.log.Info("flushed the messages that an interrupted command left for a thin pool", "vg", g.Name, "pool", pool.Name, "messages", pool.Thin.Messages)
	return g, nil
}

// removeFlush removes the volume of FlushArgs, if it exists.
func (h *Host) removeFlush(ctx context.Context, g lvm.Group) (lvm.Group, error) {
	lv := g.FindLV(lvmcmd.FlushName)
	if lv == nil {
		return g, nil
	}
	sn, ours, err := lvm.SnapshotOf(g, *lv)
	if err != nil || !ours || sn.State != lvm.StateCreating {
		return g, lvm.Errorf(lvm.KindBusy, "%s/%s has a name that the driver needs: rename or remove it", g.Name, lvmcmd.FlushName)
	}
	if err := h.removeFrom(ctx, g, sn.ID, sn.UUID, lvm.StateCreating); err != nil {
		return g, err
	}
	s, err := h.readDisks(ctx)
	if err != nil {
		return g, err
	}
	return s.FindGroup(g.UUID)
}
