package groupsnap

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

// Delete removes a group snapshot with all its members; nil if its readable group lacks it. KindNotLocal: the first member's group is not on
// this node, and no other group has a member; KindNotManaged: it belongs to another cluster; KindInUse: a member's device is open; KindBusy: a
// group with members is missing.
func (m *Maker) Delete(ctx context.Context, id lvm.ID) error {
	s, err := m.Engine.ReadState(ctx)
	if err != nil {
		return err
	}
	found, err := s.FindGroupSnapshot(id)
	switch {
	case lvm.KindOf(err) == lvm.KindNotFound && len(found.Members) == 0:
		return nil
	case lvm.KindOf(err) == lvm.KindNotFound:
		return lvm.Errorf(lvm.KindConflict, "group snapshot %s has lost its first snapshot, and %d others exist: remove these (lvremove; for example %s/%s)", id, len(found.Members), found.Members[0].Group, found.Members[0].ID.LV)
	case err != nil && len(found.Members) > 0:
		return lvm.Errorf(lvm.KindBusy, "group snapshot %s cannot be deleted while the volume group of its first snapshot is missing, and %s; reconnect the disks of that group, or if they are lost, remove these snapshots (lvremove): %w",
			id, left(found), err)
	case err != nil:
		return err
	case found.First().Cluster != m.Engine.Config.Cluster:
		return lvm.Errorf(lvm.KindNotManaged, "group snapshot %s belongs to the cluster %q, and only that cluster deletes it (this one is %q)", id, found.First().Cluster, m.Engine.Config.Cluster)
	}
	groups := allGroups(found, nil)
	unlock, err := m.lock(ctx, groups, "deleting group snapshot "+id.LV)
	if err != nil {
		return err
	}
	defer unlock()
	return m.removeAll(ctx, id)
}

// RemoveUnfinished removes a group snapshot whose first member still has this UUID and state: an interrupted request left it.
func (m *Maker) RemoveUnfinished(ctx context.Context, first lvm.Snapshot) error {
	groups := allGroups(lvm.GroupSnapshot{ID: first.Member.Of, Members: []lvm.Snapshot{first}}, nil)
	unlock, err := m.lock(ctx, groups, "removing the unfinished group snapshot "+first.Member.Of.LV)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := m.Engine.ReadDisks(ctx)
	if err != nil {
		return err
	}
	found, err := s.FindGroupSnapshot(first.Member.Of)
	switch {
	case lvm.KindOf(err) == lvm.KindNotFound:
		return nil
	case err != nil:
		return err
	case found.First().UUID != first.UUID || found.State != first.State:
		return nil // a request created it again
	}
	return m.removeAll(ctx, first.Member.Of)
}

// removeAll removes the members of a group snapshot under the locks of their groups, the first one last. It removes none while a group with
// members is missing: the first member is the only record of them.
func (m *Maker) removeAll(ctx context.Context, id lvm.ID) error {
	s, err := m.Engine.ReadDisks(ctx)
	if err != nil {
		return err
	}
	found, err := s.FindGroupSnapshot(id)
	if lvm.KindOf(err) == lvm.KindNotFound && len(found.Members) == 0 {
		return nil
	}
	first := found.First()
	if first == nil {
		return errors.Join(err, m.removeCreating(ctx, found.Members))
	}
	if err := m.removable(ctx, s, found); err != nil {
		return err
	}
	if first.State == lvm.StateReady {
		if err := m.markDeleting(ctx, s, first); err != nil {
			return err
		}
	}
	for _, sn := range found.Members {
		if sn.ID != first.ID {
			if err := m.remove(ctx, sn); err != nil {
				return err
			}
		}
	}
	return m.remove(ctx, *first)
}

// left describes the snapshots of a group snapshot that can be read.
func left(found lvm.GroupSnapshot) string {
	var names []string
	for _, sn := range found.Members {
		names = append(names, string(sn.Group)+"/"+sn.ID.LV)
	}
	return fmt.Sprintf("%d are left (%s)", len(names), strings.Join(names, ", "))
}

// removeCreating removes members that no request got, of a group snapshot whose first member was not created.
func (m *Maker) removeCreating(ctx context.Context, members []lvm.Snapshot) (failures error) {
	for _, sn := range members {
		if sn.State == lvm.StateCreating && sn.Cluster == m.Engine.Config.Cluster {
			failures = errors.Join(failures, m.remove(ctx, sn))
		}
	}
	return failures
}

// removable returns an error if a member cannot be removed now.
func (m *Maker) removable(ctx context.Context, s lvm.State, found lvm.GroupSnapshot) error {
	for _, uuid := range allGroups(found, nil) {
		g, err := s.FindGroup(uuid)
		if err != nil {
			return lvm.Errorf(lvm.KindBusy, "group snapshot %s cannot be deleted while a volume group with %d of its snapshots is missing, and %s; reconnect the disks of that group, or if they are lost, remove these snapshots (lvremove): %w",
				found.ID, missing(found), left(found), err)
		}
		if why := g.IncompleteReason(); why != "" {
			return lvm.Errorf(lvm.KindBusy, "group snapshot %s cannot be removed now: %s", found.ID, why)
		}
	}
	for _, sn := range found.Members {
		if cluster := found.First().Cluster; sn.Cluster != cluster {
			return lvm.Errorf(lvm.KindNotManaged, "snapshot %s/%s of group snapshot %s belongs to the cluster %q, and the group snapshot to %q: remove one of them (lvremove)", sn.Group, sn.ID.LV, found.ID, sn.Cluster, cluster)
		}
		path, active, err := m.Engine.FindDevice(ctx, sn.ID, sn.UUID)
		if err == nil && active {
			err = m.Engine.Machine.Kernel.CheckUnused(ctx, path)
		}
		if err != nil {
			return lvm.Errorf(lvm.KindOf(err), "snapshot %s/%s of group snapshot %s cannot be deleted: %w", sn.Group, sn.ID.LV, found.ID, err)
		}
	}
	return nil
}

// markDeleting changes the state of a first member: from now on the group snapshot is incomplete.
func (m *Maker) markDeleting(ctx context.Context, s lvm.State, first *lvm.Snapshot) error {
	g, err := s.FindGroup(first.ID.VG)
	if err != nil {
		return err
	}
	t, err := lvmcmd.TargetOf(g.Name, first.ID.LV)
	if err != nil {
		return err
	}
	done, err := m.Engine.Commit(ctx, engine.Change{Group: g, Steps: []lvmcmd.Step{{Argv: lvmcmd.StateArgs(t, g, first.UUID, first.State, lvm.StateDeleting)}}})
	if err != nil {
		return err
	}
	if g, err = done.Group(); err != nil {
		return err
	}
	lv := g.FindLV(first.ID.LV)
	if lv == nil {
		return lvm.Errorf(lvm.KindBusy, "another program removed snapshot %s; retry", t)
	}
	now, _ := lv.AsSnapshot()
	if now.UUID != first.UUID || now.State != lvm.StateDeleting {
		return lvm.Errorf(lvm.KindOf(done.Failure), "cannot tag snapshot %s as deleting: %w", t, done.Cause())
	}
	*first = now
	return m.Engine.Flush(g)
}

func (m *Maker) remove(ctx context.Context, sn lvm.Snapshot) error {
	s, err := m.Engine.ReadDisks(ctx)
	if err != nil {
		return err
	}
	return m.Engine.Remove(ctx, s, sn.ID, sn.UUID, sn.State)
}
