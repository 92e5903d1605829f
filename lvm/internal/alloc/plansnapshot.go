package alloc

import (
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
)

// SnapshotPlacement is the action for one SnapshotSpec: Ready, Leftover or Snapshot is set.
type SnapshotPlacement struct {
	Ready    *lvm.Snapshot // it exists: no action
	Leftover *lvm.Snapshot // an earlier attempt that never became ready: remove it, then plan again
	Snapshot lvm.Snapshot  // to create; without UUID and Created, which LVM assigns
	Group    lvm.Group     // of Snapshot
	Pool     *PoolGrowth   // the pool's change before
}

// PlanSnapshot decides the action for a snapshot. KindInvalid: the volume is not thin; KindExists: a snapshot of another volume
// has the name; KindBusy: another attempt creates it; KindInsufficientCapacity: its pool can provision no more; KindNotFound,
// KindNotLocal, KindNotManaged: as FindVolume.
func PlanSnapshot(s lvm.State, cluster string, spec lvm.SnapshotSpec) (SnapshotPlacement, error) {
	if err := lvm.CheckName("snapshot", spec.Name); err != nil {
		return SnapshotPlacement{}, err
	}
	if found, err := findSnapshot(s, cluster, spec); err != nil || found != nil {
		if found != nil && found.State != lvm.StateReady {
			return SnapshotPlacement{Leftover: found}, nil
		}
		return SnapshotPlacement{Ready: found}, err
	}
	g, lv, v, err := s.FindVolume(spec.Source)
	switch {
	case err != nil:
		return SnapshotPlacement{}, err
	case v.Cluster != cluster:
		return SnapshotPlacement{}, lvm.Errorf(lvm.KindNotManaged, "cannot create snapshot %q: %s/%s belongs to the cluster %q", spec.Name, g.Name, lv.Name, v.Cluster)
	case v.State == lvm.StateCreating:
		return SnapshotPlacement{}, lvm.Errorf(lvm.KindBusy, "cannot create snapshot %q yet: %s/%s is being created", spec.Name, g.Name, lv.Name)
	case v.State == lvm.StateDeleting:
		return SnapshotPlacement{}, lvm.Errorf(lvm.KindNotFound, "cannot create snapshot %q: %s/%s was deleted", spec.Name, g.Name, lv.Name)
	case v.State == lvm.StateMoved: // for good: a VolumeSnapshot whose request is only delayed cannot be deleted
		return SnapshotPlacement{}, lvm.Errorf(lvm.KindConflict, "cannot create snapshot %q: %w. Take one of the claim's volume on that node", spec.Name, v.CheckNoMove("copied"))
	case v.State.IsMove():
		return SnapshotPlacement{}, lvm.Errorf(lvm.KindBusy, "cannot create snapshot %q now: %w", spec.Name, v.CheckNoMove("copied"))
	}
	if err := v.CheckCopies(lv); err != nil {
		return SnapshotPlacement{}, lvm.Errorf(lvm.KindOf(err), "cannot create snapshot %q: %w", spec.Name, err)
	}
	return planNewSnapshot(s, g, lv, v, spec)
}

// findSnapshot returns the snapshot with the name in any of the node's volume groups.
func findSnapshot(s lvm.State, cluster string, spec lvm.SnapshotSpec) (*lvm.Snapshot, error) {
	name := lvm.SnapshotName(spec.Name)
	for _, g := range s.Groups {
		if lv := g.FindRenamed(spec.Name, name, cluster); lv != nil && lv.Managed.Volume == nil {
			return nil, lvm.Errorf(lvm.KindExists, "cannot create snapshot %q: it exists and was renamed to %s/%s: rename it back (lvrename %s %s %s), or remove it", spec.Name, g.Name, lv.Name, g.Name, lv.Name, name)
		}
		i := slices.IndexFunc(g.LVs, func(lv lvm.LV) bool { return lv.Name == name })
		if i < 0 {
			continue
		}
		sn, ours := g.LVs[i].AsSnapshot()
		err := g.LVs[i].CheckTags()
		switch {
		case err != nil:
			return nil, lvm.Errorf(lvm.KindExists, "cannot create snapshot %q: %w", spec.Name, err)
		case !ours || sn.Name != spec.Name || sn.Cluster != cluster:
			if g.UUID != spec.Source.VG {
				continue
			}
			return nil, lvm.Errorf(lvm.KindExists, "cannot create snapshot %q: %s/%s exists and is something else: rename or remove it", spec.Name, g.Name, name)
		case sn.Source != spec.Source && sn.State == lvm.StateReady:
			return nil, lvm.Errorf(lvm.KindExists, "snapshot %q already exists as %s/%s, but of the volume %s", spec.Name, g.Name, name, sn.Source)
		case sn.State == lvm.StateDeleting:
			return nil, lvm.Errorf(lvm.KindBusy, "snapshot %q was deleted, and %s/%s is being removed; retry", spec.Name, g.Name, name)
		}
		return &sn, nil
	}
	return nil, nil
}

// planNewSnapshot plans a new snapshot. Its provisioned size is its origin's, because all of its blocks may differ in time.
func planNewSnapshot(s lvm.State, g lvm.Group, lv lvm.LV, v lvm.Volume, spec lvm.SnapshotSpec) (SnapshotPlacement, error) {
	sn := lvm.Snapshot{
		ID: lvm.ID{VG: g.UUID, LV: lvm.SnapshotName(spec.Name)}, Name: spec.Name, Cluster: v.Cluster, Group: g.Name,
		Pool: lv.Pool, Source: spec.Source, State: lvm.StateCreating, Size: v.Size, Encryption: v.Class.Encryption,
		Member: spec.Member, Claim: spec.Claim,
	}
	refuse := func(err error) (SnapshotPlacement, error) {
		return SnapshotPlacement{}, lvm.Errorf(lvm.KindOf(err), "cannot create snapshot %q of %s/%s: %w", spec.Name, g.Name, lv.Name, err)
	}
	if err := CheckAllocatable(s, g, v.Class); err != nil {
		return refuse(err)
	}
	p, err := PoolOf(g, v.Class)
	if err != nil {
		return refuse(err)
	}
	growth, err := p.Growth(lv.Extents, 0, v.Class, v.Cluster)
	if err != nil {
		return refuse(lvm.Errorf(lvm.KindOf(err), "%w; a snapshot counts as much as its volume there, %s: delete snapshots or volumes, and limit the number of snapshots with a ResourceQuota", err, v.Size))
	}
	return SnapshotPlacement{Snapshot: sn, Group: g, Pool: growth}, nil
}
