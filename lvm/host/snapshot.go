package host

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// snapping and unsnapping identify CreateSnapshot and DeleteSnapshot requests among the operations in flight.
type (
	snapping   struct{ spec lvm.SnapshotSpec }
	unsnapping struct{ id lvm.ID }
)

// CreateSnapshot creates a snapshot of a ready thin volume, or finds the one that an equal request created. It takes two LVM
// processes, and one more if the pool must be extended; it never leaves the origin suspended. KindInvalid: the volume is not
// thin; KindExists: a snapshot of another volume has the name; KindNotFound, KindNotLocal, KindNotManaged: the volume;
// KindInsufficientCapacity: the pool; KindBusy: retry, perhaps after the file system is thawed.
func (h *Host) CreateSnapshot(ctx context.Context, spec lvm.SnapshotSpec) (lvm.Snapshot, error) {
	return oplock.Do(ctx, &h.operations, lvm.SnapshotName(spec.Name), snapping{spec}, func(ctx context.Context) (lvm.Snapshot, error) {
		return planAgain(fmt.Sprintf("snapshot %q", spec.Name), func() (lvm.Snapshot, error) { return h.createSnapshot(ctx, spec) })
	})
}

func (h *Host) createSnapshot(ctx context.Context, spec lvm.SnapshotSpec) (lvm.Snapshot, error) {
	s, unlock, err := h.engine.Locked(ctx, spec.Source.VG, "creating snapshot "+spec.Name, h.engine.ReadState)
	if err != nil {
		return lvm.Snapshot{}, err
	}
	defer unlock()
	p, err := alloc.PlanSnapshot(h.reserved.ApplyFor(s, lvm.LayoutThin), h.engine.Config.Cluster, spec)
	switch {
	case err != nil:
		return lvm.Snapshot{}, err
	case p.Ready != nil:
		return *p.Ready, nil
	case p.Leftover != nil:
		if err := h.engine.Remove(ctx, s, p.Leftover.ID, p.Leftover.UUID, lvm.StateCreating); err != nil {
			return lvm.Snapshot{}, err
		}
		return lvm.Snapshot{}, errChanged
	}
	g, _, origin, err := s.FindVolume(spec.Source)
	if err != nil {
		return lvm.Snapshot{}, err
	}
	if err := h.freezable(ctx, g, origin); err != nil {
		return lvm.Snapshot{}, err
	}
	resume, err := h.suspend(origin, suspendLimit)
	if err != nil {
		return lvm.Snapshot{}, err
	}
	done, err := h.commitSnapshot(ctx, g, p, origin)
	if done.Failure != nil { // before the mapping: to thaw its file system, the kernel writes to the logical volume
		h.resumeSource(ctx, s, origin.ID)
	}
	if late := resume(); late != nil && done.Failure == nil {
		done.Failure = late
	}
	if err != nil {
		return lvm.Snapshot{}, err
	}
	return h.checkSnapshot(ctx, p.Snapshot, origin, done)
}

func (h *Host) commitSnapshot(ctx context.Context, g lvm.Group, p alloc.SnapshotPlacement, origin lvm.Volume) (engine.Committed, error) {
	steps, err := lvmcmd.SnapshotSteps(p)
	if err != nil {
		return engine.Committed{}, err
	}
	if err := h.engine.CheckTransaction(g, origin.Class.Pool); err != nil {
		return engine.Committed{}, err
	}
	return h.engine.Commit(ctx, engine.Change{Group: g, Steps: steps, Legs: g.ComponentsByName(origin.Class.Pool)})
}

// freezable makes sure that LVM can suspend the origin's device for a snapshot or clone: it resumes a suspended device, and
// refuses a frozen file system, on which LVM would fail half-way.
func (h *Host) freezable(ctx context.Context, g lvm.Group, origin lvm.Volume) error {
	path, active, err := h.engine.FindDevice(ctx, origin.ID, origin.UUID)
	if err != nil || !active {
		return err
	}
	if err := h.engine.ResumeDevice(ctx, g, origin.ID.LV, path); err != nil {
		return err
	}
	path, err = h.pathInUse(origin, path)
	if err != nil {
		return err
	}
	frozen, err := h.engine.Machine.Kernel.IsFrozen(path)
	if err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot determine whether the file system on volume %s/%s is frozen: %w", g.Name, origin.ID.LV, err)
	}
	if frozen {
		return lvm.Errorf(lvm.KindBusy, "cannot snapshot or clone volume %s/%s now: its file system is frozen (fsfreeze) or does not answer a write. Run fsfreeze --unfreeze MOUNTPOINT on the node: a snapshot or clone does not need fsfreeze", g.Name, origin.ID.LV)
	}
	return nil
}

// checkSnapshot verifies what lvcreate committed, and tags the snapshot as ready together with new volumes that wait for that. It
// removes a failed snapshot and resumes the origin.
func (h *Host) checkSnapshot(ctx context.Context, want lvm.Snapshot, origin lvm.Volume, done engine.Committed) (lvm.Snapshot, error) {
	s := done.State
	g, made, err := s.FindSnapshot(want.ID)
	if lvm.KindOf(err) == lvm.KindNotLocal {
		return lvm.Snapshot{}, err
	}
	if done.Failure != nil || err != nil {
		h.resumeSource(ctx, s, origin.ID)
		if err == nil {
			if err := h.engine.Remove(ctx, s, made.ID, made.UUID, lvm.StateCreating); err != nil {
				h.log.Warn("cannot remove an unfinished snapshot; a retry or the next start removes it", "snapshot", made.ID.String(), "error", err)
			}
		}
		if err := h.freezable(ctx, g, origin); lvm.KindOf(err) == lvm.KindBusy {
			return lvm.Snapshot{}, err // frozen after the driver's check
		}
		return lvm.Snapshot{}, lvm.Errorf(lvm.KindInternal, "cannot create snapshot %q of volume %s/%s: %w", want.Name, g.Name, origin.ID.LV, done.Cause())
	}
	if err := h.ready.TagLocked(ctx, g, lvm.Volume{ID: made.ID, UUID: made.UUID, State: lvm.StateCreating}); err != nil {
		return lvm.Snapshot{}, err
	}
	made.State = lvm.StateReady
	return made, nil
}

// resumeSource resumes the source of a snapshot or clone, and its pool: a failed lvcreate can leave them suspended.
func (h *Host) resumeSource(ctx context.Context, s lvm.State, source lvm.ID) {
	g, err := s.FindGroup(source.VG)
	if err != nil {
		return
	}
	i := slices.IndexFunc(g.LVs, func(lv lvm.LV) bool { return lv.Name == source.LV })
	if i < 0 {
		return
	}
	for _, lv := range g.LVs {
		if lv.Name == g.LVs[i].Pool && h.engine.HasSuspendedComponent(g, lv) {
			err = h.engine.Refresh(ctx, g, lv)
		}
	}
	if h.engine.HasSuspendedComponent(g, g.LVs[i]) {
		err = errors.Join(err, h.engine.Refresh(ctx, g, g.LVs[i]))
	}
	if err != nil {
		h.log.Error("cannot resume a volume that a failed snapshot left suspended; I/O to it waits", "volume", source.String(), "error", err)
	}
}

// DeleteSnapshot removes a snapshot, by one LVM process. Volumes restored from it stay. A snapshot that its readable group
// lacks is deleted: nil. KindNotLocal: its group is not on this node; KindNotManaged: the driver does not manage it; KindInUse:
// its device is open.
func (h *Host) DeleteSnapshot(ctx context.Context, id lvm.ID) error {
	_, err := oplock.Do(ctx, &h.operations, id.LV, unsnapping{id}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, h.deleteSnapshot(ctx, id)
	})
	return err
}

func (h *Host) deleteSnapshot(ctx context.Context, id lvm.ID) error {
	s, unlock, err := h.engine.Locked(ctx, id.VG, "deleting snapshot "+id.LV, h.engine.ReadState)
	if err != nil {
		return err
	}
	defer unlock()
	g, sn, err := s.FindSnapshot(id)
	switch {
	case lvm.KindOf(err) == lvm.KindNotFound:
		return nil
	case err != nil:
		return err
	case sn.Cluster != h.engine.Config.Cluster:
		return lvm.Errorf(lvm.KindNotManaged, "snapshot %s/%s belongs to the cluster %q, and only that cluster deletes it (this one is %q)", g.Name, id.LV, sn.Cluster, h.engine.Config.Cluster)
	}
	if err := checkAlone(s, sn); err != nil {
		return err
	}
	path, active, err := h.engine.FindDevice(ctx, id, sn.UUID)
	if err != nil {
		return err
	}
	if active {
		if err := h.engine.Machine.Kernel.CheckUnused(ctx, path); err != nil {
			return lvm.Errorf(lvm.KindOf(err), "snapshot %s/%s cannot be deleted: %w", g.Name, id.LV, err)
		}
	}
	return h.engine.Remove(ctx, s, id, sn.UUID, sn.State)
}

// LookupSnapshot finds a ready snapshot. KindNotFound, KindNotLocal: as Lookup.
func (h *Host) LookupSnapshot(ctx context.Context, id lvm.ID) (lvm.Snapshot, error) {
	s, err := h.engine.ReadVolumes(ctx)
	if err != nil {
		return lvm.Snapshot{}, err
	}
	g, sn, err := s.FindSnapshot(id)
	if err == nil && sn.State != lvm.StateReady {
		err = g.AbsentError("snapshot %s is not ready: %s/%s has the state %q", id, g.Name, id.LV, sn.State)
	}
	if err != nil {
		return lvm.Snapshot{}, err
	}
	return sn, nil
}

// ListSnapshots lists the ready snapshots of this cluster, ordered by ID.
func (h *Host) ListSnapshots(ctx context.Context) ([]lvm.Snapshot, error) {
	s, err := h.engine.CachedState(ctx)
	if err != nil {
		return nil, err
	}
	var all []lvm.Snapshot
	for _, g := range s.Groups {
		for _, sn := range g.Snapshots() {
			if sn.Cluster == h.engine.Config.Cluster && sn.State == lvm.StateReady {
				all = append(all, sn)
			}
		}
	}
	slices.SortFunc(all, func(a, b lvm.Snapshot) int { return a.ID.Compare(b.ID) })
	return all, nil
}
