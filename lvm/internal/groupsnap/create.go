package groupsnap

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// Maker creates and removes group snapshots.
type Maker struct {
	Engine *engine.Engine
	Tasks  *oplock.Tasks
	// Reserve creates a snapshot with the state creating, under the group's lock.
	Reserve func(ctx context.Context, spec lvm.SnapshotSpec) (lvm.Snapshot, error)
	// Freezable returns an error if a volume's device cannot be suspended, and resumes one that is suspended.
	Freezable func(ctx context.Context, g lvm.Group, origin lvm.Volume) error
	// Limit of a stall; 0: Limit.
	Limit time.Duration
}

// Prepare prepares a volume for its snapshot until end is called: its I/O has no limit, and its cached data is on its disks. That shortens the time
// in which it is suspended. Both wait for as long as the volume's disk does, and no longer than ctx allows.
type Prepare = func(ctx context.Context, source lvm.ID) (end func(), err error)

// How long all volumes of a group snapshot may take to be prepared: until their groups are locked, and again under the locks, when little was
// written since. Their I/O has no limit meanwhile.
const (
	unlockedPatience = time.Minute
	lockedPatience   = 10 * time.Second
)

// errNoTurn: other operations on a volume group took too long.
var errNoTurn = fmt.Errorf("other operations on it have not ended within %s; retry", unlockedPatience)

// Create takes snapshots of volumes at one moment, or finds those that an equal request took. KindInvalid: the spec, or a volume that is not thin;
// KindExists: a group snapshot of other volumes has the name; KindNotFound, KindNotLocal, KindNotManaged: a volume; KindInsufficientCapacity: a
// pool; KindBusy: retry.
func (m *Maker) Create(ctx context.Context, spec lvm.GroupSnapshotSpec, prepare Prepare) (lvm.GroupSnapshot, error) {
	spec, err := check(spec)
	if err != nil {
		return lvm.GroupSnapshot{}, err
	}
	s, err := m.Engine.ReadState(ctx)
	if err != nil {
		return lvm.GroupSnapshot{}, err
	}
	groups := groupsOf(spec.Sources)
	if found, err := find(s, m.Engine.Config.Cluster, spec.Name); err == nil && found != nil {
		groups = allGroups(*found, groups)
	}
	wanted, err := decide(s, m.Engine.Config.Cluster, spec)
	prepared := err == nil && wanted.ready == nil
	waiting, cancel := context.WithTimeoutCause(ctx, unlockedPatience, errNoTurn)
	defer cancel()
	if prepared {
		end, err := prepareAll(waiting, unlockedPatience, spec.Sources, prepare)
		if err != nil {
			return lvm.GroupSnapshot{}, lvm.Errorf(lvm.KindOf(err), "cannot create group snapshot %q: %w", spec.Name, err)
		}
		defer end() // after the groups are unlocked
	}
	unlock, err := m.lock(waiting, groups, "creating group snapshot "+spec.Name)
	if err != nil {
		return lvm.GroupSnapshot{}, err
	}
	defer unlock()
	p, err := m.planLocked(ctx, spec, groups)
	if err != nil || p.ready != nil {
		return orNone(p.ready), err
	}
	if !prepared {
		return lvm.GroupSnapshot{}, lvm.Errorf(lvm.KindBusy, "group snapshot %q changed meanwhile; retry", spec.Name)
	}
	made, err := m.take(ctx, p, prepare)
	if err != nil {
		err = lvm.Errorf(lvm.KindOf(err), "cannot create group snapshot %q: %w", spec.Name, err)
		if left := m.removeAll(ctx, spec.ID()); left != nil {
			m.Engine.Log.Warn("cannot remove an unfinished group snapshot; a retry or the next start removes it", "group_snapshot", spec.Name, "error", left)
		}
		return lvm.GroupSnapshot{}, err
	}
	return made, nil
}

// prepareAll prepares volumes one after the other. end ends that for all of them, the last one first. KindBusy: it took longer than patience.
func prepareAll(ctx context.Context, patience time.Duration, sources []lvm.ID, prepare Prepare) (end func(), err error) {
	var ends []func()
	end = func() {
		for _, one := range slices.Backward(ends) {
			one()
		}
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, source := range sources {
		one, err := prepare(waiting, source)
		if err == nil {
			ends = append(ends, one)
			err = waiting.Err()
		}
		if err != nil {
			end()
			if waiting.Err() != nil {
				err = lvm.Errorf(lvm.KindBusy, "its volumes have much data to write, and that took longer than %s; retry: %w", patience, err)
			}
			return nil, err
		}
	}
	return end, nil
}

func orNone(found *lvm.GroupSnapshot) lvm.GroupSnapshot {
	if found == nil {
		return lvm.GroupSnapshot{}
	}
	return *found
}

// planLocked plans under the locks, after it removed what an earlier attempt left.
func (m *Maker) planLocked(ctx context.Context, spec lvm.GroupSnapshotSpec, locked []lvm.VGUUID) (plan, error) {
	for {
		s, err := m.Engine.ReadState(ctx)
		if err != nil {
			return plan{}, err
		}
		p, err := decide(s, m.Engine.Config.Cluster, spec)
		if err != nil || p.leftover == nil {
			return p, err
		}
		if left := allGroups(*p.leftover, nil); slices.ContainsFunc(left, func(g lvm.VGUUID) bool { return !slices.Contains(locked, g) }) {
			return plan{}, lvm.Errorf(lvm.KindBusy, "group snapshot %q changed meanwhile; retry", spec.Name)
		}
		if err := m.removeAll(ctx, p.leftover.ID); err != nil {
			return plan{}, err
		}
	}
}

// allGroups returns the volume groups of a group snapshot's members, and others, in ascending order.
func allGroups(found lvm.GroupSnapshot, others []lvm.VGUUID) []lvm.VGUUID {
	groups := append([]lvm.VGUUID{found.ID.VG}, others...)
	for _, sn := range found.Members {
		groups = append(groups, sn.ID.VG)
		groups = append(groups, sn.Member.OtherGroups()...)
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}

// lock acquires the locks of groups, in ascending order so that two calls never wait for each other.
func (m *Maker) lock(ctx context.Context, groups []lvm.VGUUID, what string) (unlock func(), err error) {
	var held []func()
	unlock = func() {
		for _, release := range slices.Backward(held) {
			release()
		}
	}
	for _, group := range groups {
		release, err := m.Engine.Locks.Acquire(ctx, group, what)
		if err != nil {
			unlock()
			return nil, err
		}
		held = append(held, release)
	}
	return unlock, nil
}

// take creates the planned members. On an error some of them may exist, none of them ready to be used.
func (m *Maker) take(ctx context.Context, p plan, prepare Prepare) (lvm.GroupSnapshot, error) {
	idle, err := m.inactive(ctx, p)
	if err != nil {
		return lvm.GroupSnapshot{}, err
	}
	var reserved []lvm.Snapshot
	var sources []lvm.ID
	for _, spec := range p.members {
		sn, err := m.Reserve(ctx, spec)
		if err != nil {
			return lvm.GroupSnapshot{}, err
		}
		reserved, sources = append(reserved, sn), append(sources, sn.Source)
	}
	end, err := prepareAll(ctx, lockedPatience, sources, prepare)
	if err != nil {
		return lvm.GroupSnapshot{}, err
	}
	end() // Create prepared them too, and has not ended that
	s, err := m.Engine.ReadState(ctx)
	if err != nil {
		return lvm.GroupSnapshot{}, err
	}
	if err := m.retake(ctx, s, reserved, idle); err != nil {
		return lvm.GroupSnapshot{}, err
	}
	return m.tagReady(ctx, s, reserved[0].Member.Of)
}

// inactive returns the volumes without a device. No program writes to them while their groups are locked.
func (m *Maker) inactive(ctx context.Context, p plan) (map[lvm.ID]bool, error) {
	s, err := m.Engine.ReadState(ctx)
	if err != nil {
		return nil, err
	}
	idle := map[lvm.ID]bool{}
	for _, spec := range p.members {
		_, _, v, err := s.FindVolume(spec.Source)
		if err != nil {
			return nil, err
		}
		_, active, err := m.Engine.FindDevice(ctx, v.ID, v.UUID)
		if err != nil {
			return nil, err
		}
		idle[v.ID] = !active
	}
	return idle, nil
}

// tagReady tags the members as ready, the first one last, each commit flushed.
func (m *Maker) tagReady(ctx context.Context, s lvm.State, id lvm.ID) (lvm.GroupSnapshot, error) {
	found, err := s.FindGroupSnapshot(id)
	if err != nil {
		return found, err
	}
	first := found.First()
	for _, group := range allGroups(found, nil) {
		var members []lvm.Volume
		for _, sn := range found.Members {
			if sn.ID.VG == group && sn.ID != first.ID {
				members = append(members, lvm.Volume{ID: sn.ID, UUID: sn.UUID})
			}
		}
		if err := m.tag(ctx, group, members); err != nil {
			return found, err
		}
	}
	if err := m.tag(ctx, id.VG, []lvm.Volume{{ID: first.ID, UUID: first.UUID}}); err != nil {
		return found, err
	}
	if s, err = m.Engine.ReadDisks(ctx); err != nil {
		return found, err
	}
	found, err = s.FindGroupSnapshot(id)
	if err == nil && (missing(found) > 0 || slices.ContainsFunc(found.Members, func(sn lvm.Snapshot) bool { return sn.State != lvm.StateReady })) {
		err = lvm.Errorf(lvm.KindBusy, "another program changed its snapshots; retry")
	}
	return found, err
}

// tag tags members of one group as ready, after a flush of what the pools committed.
func (m *Maker) tag(ctx context.Context, group lvm.VGUUID, members []lvm.Volume) error {
	s, err := m.Engine.ReadDisks(ctx)
	if err != nil {
		return err
	}
	g, err := s.FindGroup(group)
	if err != nil || len(members) == 0 {
		return err
	}
	if err := m.Engine.Flush(g); err != nil {
		return err
	}
	steps, err := lvmcmd.ReadyArgs(g, members)
	if err != nil {
		return err
	}
	done, err := m.Engine.Commit(ctx, engine.Change{Group: g, Steps: steps})
	if err != nil {
		return err
	}
	if g, err = done.Group(); err != nil {
		return err
	}
	for _, member := range members {
		lv := g.FindLV(member.ID.LV)
		if lv == nil || lv.UUID != member.UUID {
			return lvm.Errorf(lvm.KindBusy, "another program removed snapshot %s/%s; retry", g.Name, member.ID.LV)
		}
		if sn, is := lv.AsSnapshot(); !is || sn.State != lvm.StateReady {
			return lvm.Errorf(lvm.KindOf(done.Failure), "cannot tag snapshot %s/%s as ready: %w", g.Name, member.ID.LV, done.Cause())
		}
	}
	return m.Engine.Flush(g)
}
