package host

import (
	"context"
	"errors"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
)

// Presence finds the volume that a request with this name created. It starts no process while it can read the disks directly.
// KindBusy: the disks cannot be read.
func (h *Host) Presence(ctx context.Context, name string) (lvm.Presence, error) {
	s, underWay, err := h.readFor(ctx, "volume", name, lvm.LVName(name))
	if err != nil {
		return lvm.Presence{}, err
	}
	for _, g := range s.Groups {
		for lv, v := range g.Volumes() {
			if v.Name == name && v.Cluster == h.engine.Config.Cluster && v.State != lvm.StateDeleting {
				return lvm.Presence{Volume: &v, Made: v.State == lvm.StateReady || alloc.Complete(g, lv, v), UnderWay: underWay}, nil
			}
		}
	}
	return lvm.Presence{UnderWay: underWay, Unsure: s.CheckComplete()}, nil
}

// SnapshotPresence does the same for a snapshot.
func (h *Host) SnapshotPresence(ctx context.Context, name string) (lvm.SnapshotPresence, error) {
	s, underWay, err := h.readFor(ctx, "snapshot", name, lvm.SnapshotName(name))
	if err != nil {
		return lvm.SnapshotPresence{}, err
	}
	for _, g := range s.Groups {
		for _, sn := range g.Snapshots() {
			if sn.Name == name && sn.Cluster == h.engine.Config.Cluster && sn.State != lvm.StateDeleting {
				return lvm.SnapshotPresence{Snapshot: &sn, UnderWay: underWay}, nil
			}
		}
	}
	return lvm.SnapshotPresence{UnderWay: underWay, Unsure: s.CheckComplete()}, nil
}

// readFor reads the disks for the LV of a request, and reports whether an operation for it is in flight.
func (h *Host) readFor(ctx context.Context, kind, name, lv string) (s lvm.State, underWay bool, err error) {
	underWay = h.operations.Has(lv) // before the read: an operation that ends meanwhile shows on the disks
	if s, err = h.engine.CachedState(ctx); err != nil {
		return lvm.State{}, false, lvm.Errorf(lvm.KindBusy, "cannot determine whether %s %q exists: %w", kind, name, err)
	}
	return s, underWay, nil
}

// KeepReserved renews the reservations of the wanted peers, those whose request is still expected. The others expire seconds
// after the last request.
func (h *Host) KeepReserved(wanted func(lvm.Volume) bool) { h.reserved.Renew(wanted) }

// Serves reports whether a class with this group, a name or an @tag, selects the volume group of the ID.
func (h *Host) Serves(ctx context.Context, group string, id lvm.ID) (bool, error) {
	s, err := h.engine.CachedState(ctx)
	if err != nil {
		return false, err
	}
	groups, err := alloc.GroupsOf(s, lvm.Class{Group: group})
	if errors.Is(err, alloc.ErrNoGroup) {
		return false, nil
	}
	return slices.ContainsFunc(groups, func(g lvm.Group) bool { return g.UUID == id.VG }), err
}
