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

// A thin pool cannot shrink: one that the driver extended for a large volume would keep the extents after the volume is
// deleted. So the driver removes a pool that has been empty for a while; the next thin volume creates another. LVM removes it
// in one commit: a crash leaves the pool or none, and perhaps LVM's spare metadata, which the next pool uses. The driver does
// not know what the pool's extents hold: they count as not zeroed.

// emptyPools records since when thin pools are empty. The zero value is ready to use.
type emptyPools struct {
	mu    sync.Mutex
	since map[string]time.Time // by the pool's UUID
}

// note replaces the set of empty pools, by UUID, and returns since when each is empty.
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

// removable reports whether a logical volume is an empty thin pool that this driver created for this cluster and that no
// declaration names.
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

// emptyFor lists by group the UUIDs of the pools that have been empty for Config.EmptyPoolsFor.
func (h *Host) emptyFor(s lvm.State) map[string][]string {
	if h.cfg.EmptyPoolsFor <= 0 {
		return nil
	}
	now, group := map[string]bool{}, map[string]string{}
	for _, g := range h.reserved.Apply(s).Groups {
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

// removePool removes a pool under its group's lock if it is still empty. It ignores one whose group it cannot change now.
func (h *Host) removePool(ctx context.Context, group, uuid string) error {
	s, unlock, err := h.locked(ctx, group, "removing an empty thin pool", h.readDisks)
	if err != nil {
		return err
	}
	defer unlock()
	s = h.reserved.Apply(s)
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
	after, gone, failure, err := h.commitRemoval(ctx, uuid, change{group: g, legs: lvm.Components(g, pool), steps: []lvmcmd.Step{{Argv: removePoolArgs(t, g, pool)}}})
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

// removePoolArgs removes a pool, provided that its group has not changed at all since the driver read it: lvremove would also
// remove what an admin has since created in the pool.
func removePoolArgs(t lvmcmd.Target, g lvm.Group, pool lvm.LV) []string {
	guard := fmt.Sprintf("%s && vg_seqno=%d && lv_uuid=%s && lv_tags={%s}", lvmcmd.UnchangedSelection(g), g.Seqno, pool.UUID, lvm.EncodeTag(lvm.KeyKind, lvm.TagPool))
	return append(lvmcmd.OnDevices("lvremove", g), "-S", guard, "--", t.String())
}
