package lvm

import "slices"

// snapshotPlacement is what is to be done for one SnapshotSpec: one of ready, leftover and snapshot is set.
type snapshotPlacement struct {
	ready    *Snapshot   // it is there: nothing is to be done
	leftover *Snapshot   // an earlier attempt that never became ready: to be removed, then planned anew
	snapshot Snapshot    // to be taken: creating, without UUID and Created, which LVM gives
	group    Group       // that it is taken in
	pool     *poolGrowth // what is done to its pool before
}

// planSnapshot decides what is to be done for a snapshot. KindInvalid: the volume is not thin; KindExists: the name is
// taken by a snapshot of another volume; KindNotFound, KindNotLocal, KindNotManaged: as find; KindBusy: it
// is being made; KindInsufficientCapacity: its pool may promise no more.
func planSnapshot(s State, cluster string, spec SnapshotSpec) (snapshotPlacement, error) {
	if err := checkName("snapshot", spec.Name); err != nil {
		return snapshotPlacement{}, err
	}
	if found, err := findSnapshot(s, cluster, spec); err != nil || found != nil {
		if found != nil && found.State != StateReady {
			return snapshotPlacement{leftover: found}, nil
		}
		return snapshotPlacement{ready: found}, err
	}
	g, lv, v, err := s.find(spec.Source)
	switch {
	case err != nil:
		return snapshotPlacement{}, err
	case v.Cluster != cluster:
		return snapshotPlacement{}, Errorf(KindNotManaged, "snapshot %q cannot be taken: %s/%s was made by the cluster %q", spec.Name, g.Name, lv.Name, v.Cluster)
	case v.State == StateCreating:
		return snapshotPlacement{}, Errorf(KindBusy, "snapshot %q cannot be taken yet: %s/%s is being made", spec.Name, g.Name, lv.Name)
	case v.State == StateDeleting:
		return snapshotPlacement{}, Errorf(KindNotFound, "snapshot %q cannot be taken: %s/%s was deleted", spec.Name, g.Name, lv.Name)
	case v.Class.Layout != LayoutThin || lv.Type != string(LayoutThin):
		return snapshotPlacement{}, Errorf(KindInvalid, "snapshot %q cannot be taken: %s/%s has the layout %s, and only thin volumes have snapshots: use a StorageClass with the parameter layout: thin for volumes that need them", spec.Name, g.Name, lv.Name, v.Class.Layout)
	}
	return takeSnapshot(s, g, lv, v, spec)
}

// findSnapshot looks for the snapshot of the name in every group of the node.
func findSnapshot(s State, cluster string, spec SnapshotSpec) (*Snapshot, error) {
	name := snapshotName(spec.Name)
	for _, g := range s.Groups {
		if lv := g.renamed(spec.Name, name, cluster); lv != nil && slices.Contains(lv.Tags, encodeTag(keyKind, kindSnapshot)) {
			return nil, Errorf(KindExists, "snapshot %q cannot be taken: it is there, as %s/%s, by its tags: rename that back (lvrename %s %s %s), or remove it", spec.Name, g.Name, lv.Name, g.Name, lv.Name, name)
		}
		i := slices.IndexFunc(g.LVs, func(lv LV) bool { return lv.Name == name })
		if i < 0 {
			continue
		}
		sn, ours, err := snapshotOf(g, g.LVs[i])
		switch {
		case err != nil:
			return nil, Errorf(KindExists, "snapshot %q cannot be taken: %w", spec.Name, err)
		case !ours || sn.Name != spec.Name || sn.Cluster != cluster:
			if g.UUID != spec.Source.VG {
				continue
			}
			return nil, Errorf(KindExists, "snapshot %q cannot be taken: %s/%s exists and is not it: rename or remove it", spec.Name, g.Name, name)
		case sn.Source != spec.Source && sn.State == StateReady:
			return nil, Errorf(KindExists, "snapshot %q is already there as %s/%s, but of the volume %s", spec.Name, g.Name, name, sn.Source)
		case sn.State == StateDeleting:
			return nil, Errorf(KindBusy, "snapshot %q was deleted and %s/%s is being removed: ask again", spec.Name, g.Name, name)
		}
		return &sn, nil
	}
	return nil, nil
}

// takeSnapshot plans one that is not there. It promises as much as its origin does: all of it may come to differ.
func takeSnapshot(s State, g Group, lv LV, v Volume, spec SnapshotSpec) (snapshotPlacement, error) {
	sn := Snapshot{
		ID: ID{VG: g.UUID, LV: snapshotName(spec.Name)}, Name: spec.Name, Cluster: v.Cluster, Group: g.Name,
		Pool: lv.Pool, Source: spec.Source, State: StateCreating, Size: v.Size,
	}
	refuse := func(err error) (snapshotPlacement, error) {
		return snapshotPlacement{}, Errorf(KindOf(err), "snapshot %q of %s/%s cannot be taken: %w", spec.Name, g.Name, lv.Name, err)
	}
	if err := obstacle(s, g, v.Class); err != nil {
		return refuse(err)
	}
	p, err := poolOf(g, v.Class)
	if err != nil {
		return refuse(err)
	}
	growth, err := p.growth(lv.Extents, 0, v.Class, v.Cluster)
	if err != nil {
		return refuse(err)
	}
	return snapshotPlacement{snapshot: sn, group: g, pool: growth}, nil
}
