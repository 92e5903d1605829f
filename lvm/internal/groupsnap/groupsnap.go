package groupsnap

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nodelvm/nodelvm/internal/dm"
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

// How long all volumes of a group snapshot may take to be prepared: before their groups are locked, and again under the locks, when little was
// written since.
const (
	unlockedPatience = time.Minute
	lockedPatience   = 10 * time.Second
)

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
	if prepared {
		end, err := prepareAll(ctx, unlockedPatience, spec.Sources, prepare)
		if err != nil {
			return lvm.GroupSnapshot{}, lvm.Errorf(lvm.KindOf(err), "cannot create group snapshot %q: %w", spec.Name, err)
		}
		defer end() // after the groups are unlocked
	}
	unlock, err := m.lock(ctx, groups, "creating group snapshot "+spec.Name)
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

// Delete removes a group snapshot with all its members; nil if its readable group lacks it. KindNotLocal: the first member's group is not on
// this node; KindNotManaged: it belongs to another cluster; KindInUse: a member's device is open; KindBusy: a group with members is missing.
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
			return lvm.Errorf(lvm.KindBusy, "group snapshot %s cannot be removed while a volume group with snapshots of it is missing: %w", found.ID, err)
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

// retake makes the reserved snapshots those of one moment. What it does rests on a reading under LVM's lock: until it has that, an admin's
// command may change what s shows.
func (m *Maker) retake(ctx context.Context, s lvm.State, reserved []lvm.Snapshot, idle map[lvm.ID]bool) error {
	work := stall{kernel: m.Engine.Machine.Kernel, limit: m.Limit}
	if work.limit == 0 {
		work.limit = Limit
	}
	var names []lvm.VGName // the group of each snapshot
	for _, sn := range reserved {
		g, _, v, err := s.FindVolume(sn.Source)
		if err == nil {
			err = m.Freezable(ctx, g, v) // it may run an lvm command, which takes that lock
		}
		if err != nil {
			return err
		}
		names = append(names, g.Name)
	}
	unlock, err := m.lockCommands(ctx, slices.Clone(names))
	if err != nil {
		return err
	}
	defer unlock()
	if s, err = m.Engine.ReadDisks(ctx); err != nil {
		return err
	}
	for i, sn := range reserved {
		if err := m.prepare(ctx, s, &work, sn, idle[sn.Source]); err != nil {
			return err
		}
		if g, err := s.FindGroup(sn.ID.VG); err != nil || g.Name != names[i] {
			return errors.Join(err, lvm.Errorf(lvm.KindBusy, "volume group %s was renamed meanwhile; retry", names[i]))
		}
	}
	stalled, err := work.run(m.resumeLater)
	if len(work.origins) > 0 {
		m.Engine.Log.Info("suspended volumes for a group snapshot", "volumes", len(work.origins), "stall", stalled, "error", err)
		if observe := m.Engine.Config.ObserveStall; observe != nil {
			observe(stalled)
		}
	}
	if err == nil {
		err = m.checkPools(work.retakes)
	}
	return err
}

// checkPools returns an error (KindBusy) if a pool may not have committed the snapshots: the kernel accepts a message, then drops what it did if
// it cannot write the pool's metadata. The number is that of the reserved snapshot again, and the pool takes no writes.
func (m *Maker) checkPools(taken []retake) error {
	checked := map[string]bool{}
	for _, r := range taken {
		if checked[r.pool] {
			continue
		}
		checked[r.pool] = true
		path, active, err := m.Engine.Machine.Kernel.Device(r.pool)
		var status *lvm.PoolStatus
		if err == nil && active {
			status, err = engine.StatusAt(m.Engine, path, "thin-pool", dm.ParsePool)
		}
		switch {
		case err != nil:
			return lvm.Errorf(lvm.KindBusy, "cannot determine whether the thin pool of snapshot %s has committed it; retry: %w", r.name, err)
		case status == nil:
			return lvm.Errorf(lvm.KindBusy, "the thin pool of snapshot %s was deactivated meanwhile; retry", r.name)
		case status.IsFailed():
			return lvm.Errorf(lvm.KindBusy, "the thin pool of snapshot %s may not have committed it: %s", r.name, status.FailureReason())
		}
	}
	return nil
}

// prepare adds a reserved snapshot, and its volume if that is active, to the work. A snapshot of an inactive volume in an inactive pool stays as it
// was reserved: no program has written to the volume since.
func (m *Maker) prepare(ctx context.Context, s lvm.State, work *stall, sn lvm.Snapshot, wasIdle bool) error {
	g, lv, v, err := s.FindVolume(sn.Source)
	if err != nil {
		return err
	}
	made, pool := g.FindLV(sn.ID.LV), g.FindLV(lv.Pool)
	if made == nil || made.UUID != sn.UUID || pool == nil || made.ThinID == 0 || lv.ThinID == 0 || made.Pool != lv.Pool {
		return lvm.Errorf(lvm.KindBusy, "another program changed volume %s/%s, its snapshot %s or the thin pool %s; retry", g.Name, lv.Name, sn.ID.LV, lv.Pool)
	}
	name := string(g.Name) + "/" + lv.Name
	path, active, err := m.Engine.FindDevice(ctx, v.ID, v.UUID)
	if err != nil {
		return err
	}
	if !active && !wasIdle {
		return lvm.Errorf(lvm.KindBusy, "volume %s was deactivated meanwhile; retry", name)
	}
	tpool := lvm.DeviceUUID(g.UUID, pool.UUID) + "-tpool"
	_, poolActive, err := m.Engine.Machine.Kernel.Device(tpool)
	switch {
	case err != nil:
		return err
	case !active && !poolActive:
		return nil
	}
	if _, raised, err := m.Engine.FindDevice(ctx, sn.ID, sn.UUID); err != nil || raised {
		return errors.Join(err, lvm.Errorf(lvm.KindBusy, "another program activated snapshot %s/%s; retry", g.Name, sn.ID.LV))
	}
	work.retakes = append(work.retakes, retake{name: string(g.Name) + "/" + sn.ID.LV, pool: tpool, id: made.ThinID, origin: lv.ThinID})
	if active {
		work.origins = append(work.origins, origin{name: name, uuid: lvm.DeviceUUID(g.UUID, lv.UUID), path: path, mapping: m.mappingOf(v)})
	}
	return nil
}

// mappingOf returns the function that suspends the mapping of an encrypted volume.
func (m *Maker) mappingOf(v lvm.Volume) func() (func() error, error) {
	if v.Class.Encryption == lvm.EncryptionNone || m.Engine.Config.Encryption == nil {
		return nil
	}
	return func() (func() error, error) { return m.Engine.Config.Encryption.Suspend(v.ID.String()) }
}

// lockCommands keeps an admin's lvm commands away from the groups: one that activates or refreshes a volume would resume it.
func (m *Maker) lockCommands(ctx context.Context, groups []lvm.VGName) (unlock func(), err error) {
	slices.Sort(groups)
	var held []func()
	unlock = func() {
		for _, release := range slices.Backward(held) {
			release()
		}
	}
	waiting, cancel := context.WithTimeout(ctx, oplock.LockPatience)
	defer cancel()
	for _, group := range slices.Compact(groups) {
		release, err := oplock.LockVG(waiting, m.Engine.Config.LockDir, group)
		if err != nil {
			unlock()
			return nil, lvm.Errorf(lvm.KindBusy, "%w", err)
		}
		held = append(held, release)
	}
	return unlock, nil
}

// resumeLater tries to resume a volume until that succeeds, or the driver stops: the next start resumes it.
func (m *Maker) resumeLater(resume func() error) {
	m.Tasks.Start(func(ctx context.Context) {
		for {
			err := resume()
			if err == nil || lvm.KindOf(err) == lvm.KindBusy {
				return
			}
			m.Engine.Log.Error("cannot resume a volume after a group snapshot; I/O to it waits, and the driver retries", "error", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(resumePause):
			}
		}
	})
}
