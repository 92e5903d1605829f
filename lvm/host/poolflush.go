package host

import (
	"context"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

// LVM tells a thin pool by messages: it commits them with its metadata, sends them, lets the pool count them, and commits
// that there are none any more. What a command leaves that is cut off before its last commit the next lvcreate sends, if
// the pool did not count it, and drops. lvremove drops what is about the volume that it removes. But its message about
// another one it puts behind those that are left (2.03.16, 2.03.31: attach_pool_message); if the pool has counted them, it
// takes its own for counted too, and the pool keeps the removed volume's blocks for ever. So before a volume is removed, and
// at a start, LVM is made to drop the messages of our pools: it makes a volume, which is removed again.

// unflushed tells whether a volume is a thin pool of ours for which LVM has messages.
func unflushed(lv lvm.LV) bool { return lv.Thin != nil && len(lv.Thin.Messages) > 0 && lvm.IsPool(lv) }

// flushPools flushes the pools of a group at a start.
func (h *Host) flushPools(ctx context.Context, g lvm.Group) {
	if !slices.ContainsFunc(g.LVs, unflushed) {
		return
	}
	s, unlock, err := h.locked(ctx, g.UUID, "telling thin pools what an unfinished command did not", h.readDisks)
	if err != nil {
		return // gone, or the driver ends
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
			h.log.Warn("what an unfinished command had for a thin pool is still there; it is tried again before a volume of it is removed", "error", err)
		}
	}
}

// flushBefore flushes the pool of a thin volume that is about to be removed, and answers the group as it is then. The
// group's lock must be held.
func (h *Host) flushBefore(ctx context.Context, g lvm.Group, lv lvm.LV) (lvm.Group, error) {
	pool := g.FindLV(lv.Pool)
	if lv.Pool == "" || pool == nil || !unflushed(*pool) || g.HasPendingCreate(lv) {
		return g, nil
	}
	return h.flushPool(ctx, g, *pool)
}

// flushPool makes LVM drop its messages for a pool. The group's lock must be held.
func (h *Host) flushPool(ctx context.Context, g lvm.Group, pool lvm.LV) (lvm.Group, error) {
	g, err := h.removeFlush(ctx, g)
	if err != nil {
		return g, err
	}
	failure := h.runAfterCleanup(ctx, g, lvm.Components(g, pool), []lvmcmd.Step{{Argv: lvmcmd.FlushArgs(g, pool, h.cfg.Cluster)}})
	s, err := h.readDisks(ctx)
	if err == nil {
		g, err = s.FindGroup(g.UUID)
	}
	if err == nil {
		g, err = h.removeFlush(ctx, g)
	}
	if err != nil {
		return g, err
	}
	if now := g.FindLV(pool.Name); now != nil && unflushed(*now) {
		return g, lvm.Errorf(lvm.KindBusy, "LVM could not tell the thin pool %s/%s what a command that was cut off had for it (%s), and would lose blocks of what is removed from the pool now: %w",
			g.Name, pool.Name, strings.Join(now.Thin.Messages, ", "), orNoEffect(failure))
	}
	h.log.Info("LVM has told a thin pool what a command that was cut off had for it", "vg", g.Name, "pool", pool.Name, "messages", pool.Thin.Messages)
	return g, nil
}

// removeFlush removes the volume of FlushArgs, if it is there.
func (h *Host) removeFlush(ctx context.Context, g lvm.Group) (lvm.Group, error) {
	lv := g.FindLV(lvmcmd.FlushName)
	if lv == nil {
		return g, nil
	}
	sn, ours, err := lvm.SnapshotOf(g, *lv)
	if err != nil || !ours || sn.State != lvm.StateCreating {
		return g, lvm.Errorf(lvm.KindBusy, "%s/%s has a name that this driver needs: rename or remove it", g.Name, lvmcmd.FlushName)
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
