package thinpool

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
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
	if lv.Thin == nil || lv.Hidden || !lv.IsManagedPool() || len(lv.UsedBy) > 0 || lv.Managed.Cluster != cluster {
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
func (m *Manager) emptyFor(s lvm.State) map[lvm.VGUUID][]string {
	if m.engine.Config.EmptyPoolsFor <= 0 {
		return nil
	}
	now, group := map[string]bool{}, map[string]lvm.VGUUID{}
	for _, g := range m.reserved.Apply(s).Groups {
		for _, lv := range g.LVs {
			if lv.UUID != "" && removable(g, lv, m.engine.Config.Cluster, m.declared()) {
				now[lv.UUID], group[lv.UUID] = true, g.UUID
			}
		}
	}
	due := map[lvm.VGUUID][]string{}
	for uuid, since := range m.emptied.note(now) {
		if time.Since(since) >= m.engine.Config.EmptyPoolsFor {
			due[group[uuid]] = append(due[group[uuid]], uuid)
		}
	}
	return due
}

// removePool removes a pool under its group's lock if it is still empty. It ignores one whose group it cannot change now.
func (m *Manager) removePool(ctx context.Context, group lvm.VGUUID, uuid string) error {
	s, unlock, err := m.engine.Locked(ctx, group, "removing an empty thin pool", m.engine.ReadDisks)
	if err != nil {
		return err
	}
	defer unlock()
	s = m.reserved.Apply(s)
	g, err := s.FindGroup(group)
	if err != nil || lvm.CheckWritable(s, g) != nil {
		return err
	}
	lv := g.LVByUUID(uuid)
	if lv == nil || !removable(g, *lv, m.engine.Config.Cluster, m.declared()) || alloc.IsMoving(g, *lv) {
		return nil
	}
	pool := *lv
	if engine.Unflushed(pool) {
		if g, err = m.engine.FlushPool(ctx, g, pool); err != nil {
			return err
		}
	}
	if err := m.engine.CheckEmpty(ctx, g, pool); err != nil {
		return err
	}
	t, err := lvmcmd.TargetOf(g.Name, pool.Name)
	if err != nil {
		return err
	}
	after, gone, failure, err := m.engine.CommitRemoval(ctx, uuid, engine.Change{Group: g, Legs: lvm.Components(g, pool), Steps: []lvmcmd.Step{{Argv: removePoolArgs(t, g, pool)}}})
	switch {
	case err != nil:
		return err
	case !gone:
		return lvm.Errorf(lvm.KindOf(failure), "cannot remove the empty thin pool %s: %w", t, engine.OrNoEffect(failure))
	}
	m.engine.RemoveNamesOf(g, after, pool)
	m.engine.Log.Info("removed an empty thin pool", "vg", g.Name, "vg_uuid", g.UUID, "pool", pool.Name, "size", g.Bytes(pool.Extents))
	return m.engine.Flush(after)
}

// removePoolArgs removes a pool, provided that its group has not changed at all since the driver read it: lvremove would also
// remove what an admin has since created in the pool.
func removePoolArgs(t lvmcmd.Target, g lvm.Group, pool lvm.LV) []string {
	guard := fmt.Sprintf("%s && vg_seqno=%d && lv_uuid=%s && lv_tags={%s}", lvmcmd.UnchangedSelection(g), g.Seqno, pool.UUID, lvm.PoolTag())
	return append(lvmcmd.OnDevices("lvremove", g), "-S", guard, "--", t.String())
}
