package host

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

// A thin pool cannot shrink, so that one that was enlarged for a large volume would keep the group's extents when that is gone. A
// pool that holds nothing is removed instead, after a while: the next thin volume makes another one. LVM commits its
// removal at once, so that a crash leaves the pool or none; what may be left besides is LVM's spare, which the next pool uses.
// What the pool's extents held nobody reads: they count as not zeroed.

// emptyPools remembers since when thin pools have held nothing. The zero value is ready to use.
type emptyPools struct {
	mu    sync.Mutex
	since map[string]time.Time // by the pool's UUID
}

// note takes the pools that hold nothing now, by UUID, and answers since when each has done so.
func (e *emptyPools) note(now map[string]bool) map[string]time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	since := make(map[string]time.Time, len(now))
	for uuid := range now {
		since[uuid] = time.Now()
		if before, known := e.since[uuid]; known {
			since[uuid] = before
		}
	}
	e.since = since
	return since
}

// removable tells whether a logical volume is a thin pool that this driver made for this cluster, that holds no volume or snapshot of
// anybody, and that is not declared to be there.
func removable(g lvm.Group, lv lvm.LV, cluster string, declared []lvm.Declaration) bool {
	if lv.Thin == nil || lv.Hidden || !lvm.IsPool(lv) || len(lv.UsedBy) > 0 || !slices.Contains(lv.Tags, lvm.EncodeTag(lvm.KeyCluster, cluster)) {
		return false
	}
	if slices.ContainsFunc(g.LVs, func(other lvm.LV) bool { return other.Pool == lv.Name }) {
		return false
	}
	return !slices.ContainsFunc(declared, func(d lvm.Declaration) bool {
		return d.Name == g.Name && d.Pool.Name == lv.Name && d.Pool.Size > 0
	})
}

// emptyFor lists by group the UUIDs of the pools that have held nothing for as long as they may.
func (h *Host) emptyFor(s lvm.State) map[string][]string {
	if h.cfg.EmptyPoolsFor <= 0 {
		return nil
	}
	now, group := map[string]bool{}, map[string]string{}
	for _, g := range h.reserved.in(s).Groups {
		for _, lv := range g.LVs {
			if lv.UUID != "" && removable(g, lv, h.cfg.Cluster, h.declared()) {
				now[lv.UUID], group[lv.UUID] = true, g.UUID
			}
		}
	}
	due := map[string][]string{}
	for uuid, since := range h.emptied.note(now) {
		if time.Since(since) >= h.cfg.EmptyPoolsFor {
			due[group[uuid]] = append(due[group[uuid]], uuid)
		}
	}
	return due
}

// removePool removes a pool, if it still holds nothing, under its group's lock. One in a group that cannot be changed now stays.
func (h *Host) removePool(ctx context.Context, group, uuid string) error {
	s, unlock, err := h.locked(ctx, group, "removing an empty thin pool", h.readDisks)
	if err != nil {
		return err
	}
	defer unlock()
	s = h.reserved.in(s)
	g, err := s.FindGroup(group)
	if err != nil || lvm.CheckWritable(s, g) != nil {
		return err
	}
	i := slices.IndexFunc(g.LVs, func(lv lvm.LV) bool { return lv.UUID == uuid })
	if i < 0 || !removable(g, g.LVs[i], h.cfg.Cluster, h.declared()) || alloc.IsMoving(g, g.LVs[i]) {
		return nil
	}
	pool := g.LVs[i]
	if unflushed(pool) {
		if g, err = h.flushPool(ctx, g, pool); err != nil {
			return err
		}
	}
	t, err := lvmcmd.TargetOf(g.Name, pool.Name)
	if err != nil {
		return err
	}
	failure := h.runAfterCleanup(ctx, g, lvm.Components(g, pool), []lvmcmd.Step{{Argv: removePoolArgs(t, g, pool)}})
	after, gone, err := h.isGone(ctx, group, uuid)
	switch {
	case err != nil:
		return err
	case !gone:
		return lvm.Errorf(lvm.KindOf(failure), "cannot remove the empty thin pool %s: %w", t, orNoEffect(failure))
	}
	h.removeNamesOf(g, after, pool)
	h.log.Info("removed an empty thin pool", "vg", g.Name, "vg_uuid", g.UUID, "pool", pool.Name, "size", g.Bytes(pool.Extents))
	return h.flush(after)
}

// removePoolArgs removes a pool, if nothing at all has changed in its group since it was read: lvremove would take along what an
// admin has made in the pool meanwhile.
func removePoolArgs(t lvmcmd.Target, g lvm.Group, pool lvm.LV) []string {
	guard := fmt.Sprintf("%s && vg_seqno=%d && lv_uuid=%s && lv_tags={%s}", lvmcmd.UnchangedSelection(g), g.Seqno, pool.UUID, lvm.EncodeTag(lvm.KeyKind, lvm.TagPool))
	return append(lvmcmd.OnDevices("lvremove", g), "-S", guard, "--", t.String())
}
