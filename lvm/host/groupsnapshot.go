package host

import (
	"context"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/groupsnap"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// groupSnapping and groupUnsnapping identify CreateGroupSnapshot and DeleteGroupSnapshot requests among the operations in flight.
type (
	groupSnapping   struct{ name, sources string }
	groupUnsnapping struct{ id lvm.ID }
)

// newGroupSnapshots returns what creates and removes group snapshots of this Host.
func (h *Host) newGroupSnapshots() *groupsnap.Maker {
	return &groupsnap.Maker{Engine: h.engine, Tasks: h.tasks, Reserve: h.reserveSnapshot, Freezable: h.freezable}
}

// CreateGroupSnapshot takes snapshots of ready thin volumes of one or several groups at one moment, or finds those that an equal request
// took. It suspends the active ones for at most some seconds. prepare is a groupsnap.Prepare; it may do nothing. It takes
// an LVM process for each volume, and one more for each volume group and for the whole. The errors are those of groupsnap.Maker.Create.
func (h *Host) CreateGroupSnapshot(ctx context.Context, spec lvm.GroupSnapshotSpec, prepare func(context.Context, lvm.ID) (end func(), err error)) (lvm.GroupSnapshot, error) {
	var sources strings.Builder
	for _, source := range spec.Sources {
		sources.WriteString(source.String() + " ")
	}
	return oplock.Do(ctx, &h.operations, lvm.GroupSnapshotName(spec.Name), groupSnapping{spec.Name, sources.String()}, func(ctx context.Context) (lvm.GroupSnapshot, error) {
		return h.groupSnapshots.Create(ctx, spec, prepare)
	})
}

// DeleteGroupSnapshot removes a group snapshot and its members, by one LVM process each and one more. Volumes restored from them stay. The
// errors are those of groupsnap.Maker.Delete.
func (h *Host) DeleteGroupSnapshot(ctx context.Context, id lvm.ID) error {
	_, err := oplock.Do(ctx, &h.operations, id.LV, groupUnsnapping{id}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, h.groupSnapshots.Delete(ctx, id)
	})
	return err
}

// LookupGroupSnapshot finds a ready group snapshot. KindNotFound, KindNotLocal: as Lookup; KindBusy: some of its snapshots cannot be read.
func (h *Host) LookupGroupSnapshot(ctx context.Context, id lvm.ID) (lvm.GroupSnapshot, error) {
	s, err := h.engine.ReadState(ctx)
	if err != nil {
		return lvm.GroupSnapshot{}, err
	}
	found, err := s.FindGroupSnapshot(id)
	switch {
	case err != nil:
		return lvm.GroupSnapshot{}, err
	case found.State != lvm.StateReady || found.First().Cluster != h.engine.Config.Cluster:
		return lvm.GroupSnapshot{}, lvm.Errorf(lvm.KindNotFound, "group snapshot %s is not ready: it has the state %q", id, found.State)
	case len(found.Members) < found.First().Member.Count:
		return lvm.GroupSnapshot{}, lvm.Errorf(lvm.KindBusy, "group snapshot %s has %d snapshots, of which only %d can be read: a volume group is missing, or an admin removed them", id, found.First().Member.Count, len(found.Members))
	}
	return found, nil
}

// reserveSnapshot creates a snapshot that stays in the state creating. The caller holds its group's lock. LVM stops I/O to the volume for a moment;
// the mapping of an encrypted one stays as it is, because the content does not count.
func (h *Host) reserveSnapshot(ctx context.Context, spec lvm.SnapshotSpec) (lvm.Snapshot, error) {
	s, err := h.engine.ReadState(ctx)
	if err != nil {
		return lvm.Snapshot{}, err
	}
	p, err := alloc.PlanSnapshot(h.reserved.ApplyFor(s, lvm.LayoutThin), h.engine.Config.Cluster, spec)
	if err != nil {
		return lvm.Snapshot{}, err
	}
	if p.Ready != nil || p.Leftover != nil {
		return lvm.Snapshot{}, lvm.Errorf(lvm.KindBusy, "another snapshot has the name %q; retry", spec.Name)
	}
	g, _, origin, err := s.FindVolume(spec.Source)
	if err != nil {
		return lvm.Snapshot{}, err
	}
	if err := h.freezable(ctx, g, origin); err != nil {
		return lvm.Snapshot{}, err
	}
	done, err := h.commitSnapshot(ctx, g, p, origin)
	if done.Failure != nil {
		h.resumeSource(ctx, s, origin.ID)
	}
	if err != nil {
		return lvm.Snapshot{}, err
	}
	_, made, err := done.State.FindSnapshot(p.Snapshot.ID)
	if done.Failure != nil || err != nil {
		return lvm.Snapshot{}, lvm.Errorf(lvm.KindOf(done.Failure), "cannot create snapshot %q of volume %s/%s: %w", p.Snapshot.Name, g.Name, origin.ID.LV, done.Cause())
	}
	return made, nil
}

// checkAlone refuses (KindInvalid) the deletion of a snapshot that is a part of a group snapshot, unless that is proved to be gone.
func checkAlone(s lvm.State, sn lvm.Snapshot) error {
	if sn.Member.Of == (lvm.ID{}) {
		return nil
	}
	if _, err := s.FindGroupSnapshot(sn.Member.Of); err != nil && lvm.KindOf(err) == lvm.KindNotFound {
		return nil //nolint:nilerr // it is an ordinary snapshot now
	}
	return lvm.Errorf(lvm.KindInvalid, "snapshot %s/%s is a part of the group snapshot %s, and is deleted with it: delete the VolumeGroupSnapshot", sn.Group, sn.ID.LV, sn.Member.Of)
}
