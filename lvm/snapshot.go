package lvm

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// snapping and unsnapping are a CreateSnapshot and a DeleteSnapshot request, as flights compare them.
type (
	snapping   struct{ spec SnapshotSpec }
	unsnapping struct{ id ID }
)

// CreateSnapshot takes a snapshot of a ready thin volume, or finds the one that an equal request took. Two LVM processes,
// and one more where the pool must grow for it; the origin is never left suspended. KindInvalid: the volume is not thin;
// KindExists: the name is taken by a snapshot of another volume; KindNotFound, KindNotLocal, KindNotManaged: the volume; KindInsufficientCapacity: the
// pool; KindBusy: ask again, or somebody froze the file system.
func (h *Host) CreateSnapshot(ctx context.Context, spec SnapshotSpec) (Snapshot, error) {
	return fly(ctx, &h.flights, snapshotName(spec.Name), snapping{spec}, func(ctx context.Context) (Snapshot, error) {
		for range createAttempts {
			sn, err := h.snap(ctx, spec)
			if !errors.Is(err, errChanged) {
				return sn, err
			}
		}
		return Snapshot{}, Errorf(KindBusy, "snapshot %q: its volume group is being changed by somebody else all the time; ask again", spec.Name)
	})
}

func (h *Host) snap(ctx context.Context, spec SnapshotSpec) (Snapshot, error) {
	s, unlock, err := h.locked(ctx, spec.Source.VG, "taking snapshot "+spec.Name, h.read)
	if err != nil {
		return Snapshot{}, err
	}
	defer unlock()
	p, err := planSnapshot(h.reserved.in(s), h.cfg.Cluster, spec)
	switch {
	case err != nil:
		return Snapshot{}, err
	case p.ready != nil:
		return *p.ready, nil
	case p.leftover != nil:
		if err := h.remove(ctx, s, p.leftover.ID, p.leftover.UUID, StateCreating); err != nil {
			return Snapshot{}, err
		}
		return Snapshot{}, errChanged
	}
	g, _, origin, err := s.find(spec.Source)
	if err != nil {
		return Snapshot{}, err
	}
	if err := h.freezable(ctx, g, origin); err != nil {
		return Snapshot{}, err
	}
	steps, err := snapshotSteps(p)
	if err != nil {
		return Snapshot{}, err
	}
	failure := h.runOver(ctx, g, g.partsOf(origin.Class.Pool), steps)
	return h.snapped(ctx, p.snapshot, origin, failure)
}

// freezable sees to it that the origin's device can be suspended for a moment, as a snapshot or a copy needs it: it is not
// suspended already, and nobody has frozen its file system, on which LVM would fail half-way.
func (h *Host) freezable(ctx context.Context, g Group, origin Volume) error {
	path, active, err := h.Device(origin.ID, origin.UUID)
	if err != nil || !active {
		return err
	}
	if err := h.heal(ctx, g, origin.ID.LV, path); err != nil {
		return err
	}
	frozen, err := h.machine.Kernel.Frozen(path)
	if err != nil {
		return Errorf(KindInternal, "whether the file system on volume %s/%s is frozen: %w", g.Name, origin.ID.LV, err)
	}
	if frozen {
		return Errorf(KindBusy, "no snapshot or copy of volume %s/%s can be made now: somebody froze its file system (fsfreeze), or it takes no writes; thaw it (fsfreeze --unfreeze), device-mapper freezes it by itself", g.Name, origin.ID.LV)
	}
	return nil
}

// snapped looks what taking a snapshot has come to, and marks it as ready, together with new volumes that wait for the
// same. One that failed is removed, and the origin resumed.
func (h *Host) snapped(ctx context.Context, want Snapshot, origin Volume, failure error) (Snapshot, error) {
	s, err := h.readRaw(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	g, made, err := s.findSnapshot(want.ID)
	if KindOf(err) == KindNotLocal {
		return Snapshot{}, err
	}
	if failure != nil || err != nil {
		h.healSource(ctx, s, origin.ID)
		if err == nil {
			if err := h.remove(ctx, s, made.ID, made.UUID, StateCreating); err != nil {
				h.log.Warn("a half-made snapshot is still there; a retry or the next start removes it", "snapshot", made.ID.String(), "error", err)
			}
		}
		if err := h.freezable(ctx, g, origin); KindOf(err) == KindBusy {
			return Snapshot{}, err // frozen between our look and LVM's
		}
		return Snapshot{}, Errorf(KindInternal, "snapshot %q of volume %s/%s could not be taken: %w", want.Name, g.Name, origin.ID.LV, orNothing(failure))
	}
	if err := h.settleLocked(ctx, g, Volume{ID: made.ID, UUID: made.UUID, State: StateCreating}); err != nil {
		return Snapshot{}, err
	}
	made.State = StateReady
	return made, nil
}

// healSource resumes a volume that a snapshot or a copy was to be taken of, and its pool: a failed lvcreate can leave them
// suspended.
func (h *Host) healSource(ctx context.Context, s State, source ID) {
	g, err := s.group(source.VG)
	if err != nil {
		return
	}
	i := slices.IndexFunc(g.LVs, func(lv LV) bool { return lv.Name == source.LV })
	if i < 0 {
		return
	}
	for _, lv := range g.LVs {
		if lv.Name == g.LVs[i].Pool && h.partSuspended(g, lv) {
			err = h.refresh(ctx, g, lv)
		}
	}
	if h.partSuspended(g, g.LVs[i]) {
		err = errors.Join(err, h.refresh(ctx, g, g.LVs[i]))
	}
	if err != nil {
		h.log.Error("a volume was left suspended by a failed snapshot and could not be resumed: what uses it hangs", "volume", source.String(), "error", err)
	}
}

// DeleteSnapshot removes a snapshot, by one LVM process. Volumes made from it stay. One that a readable group lacks is
// gone: nil. KindNotLocal: its group is not on this node; KindNotManaged: it is not this driver's; KindInUse: an admin has it open.
func (h *Host) DeleteSnapshot(ctx context.Context, id ID) error {
	_, err := fly(ctx, &h.flights, id.LV, unsnapping{id}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, h.unsnap(ctx, id)
	})
	return err
}

func (h *Host) unsnap(ctx context.Context, id ID) error {
	s, unlock, err := h.locked(ctx, id.VG, "deleting snapshot "+id.LV, h.read)
	if err != nil {
		return err
	}
	defer unlock()
	g, sn, err := s.findSnapshot(id)
	switch {
	case KindOf(err) == KindNotFound:
		return nil
	case err != nil:
		return err
	case sn.Cluster != h.cfg.Cluster:
		return Errorf(KindNotManaged, "snapshot %s/%s was made by the cluster %q, and only that one deletes it (this one is %q)", g.Name, id.LV, sn.Cluster, h.cfg.Cluster)
	}
	path, active, err := h.Device(id, sn.UUID)
	if err != nil {
		return err
	}
	if active {
		if err := h.machine.Kernel.Unused(ctx, path); err != nil {
			return Errorf(KindOf(err), "snapshot %s/%s cannot be deleted: %w", g.Name, id.LV, err)
		}
	}
	return h.remove(ctx, s, id, sn.UUID, sn.State)
}

// LookupSnapshot finds a ready snapshot. KindNotFound, KindNotLocal: as Lookup.
func (h *Host) LookupSnapshot(ctx context.Context, id ID) (Snapshot, error) {
	s, err := h.read(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	g, sn, err := s.findSnapshot(id)
	if err == nil && sn.State != StateReady {
		err = g.absent("snapshot %s is not there: %s/%s is in the state %q", id, g.Name, id.LV, sn.State)
	}
	if err != nil {
		return Snapshot{}, err
	}
	return sn, nil
}

// ListSnapshots lists the ready snapshots of this cluster, ordered by ID.
func (h *Host) ListSnapshots(ctx context.Context) ([]Snapshot, error) {
	s, err := h.look(ctx)
	if err != nil {
		return nil, err
	}
	var all []Snapshot
	for _, g := range s.Groups {
		for _, lv := range g.LVs {
			sn, ours, err := snapshotOf(g, lv)
			if err == nil && ours && sn.Cluster == h.cfg.Cluster && sn.State == StateReady { // a damaged one is none
				all = append(all, sn)
			}
		}
	}
	slices.SortFunc(all, func(a, b Snapshot) int { return strings.Compare(a.ID.String(), b.ID.String()) })
	return all, nil
}
