package host

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/internal/dm"
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

// ManagedVolumes lists the managed volumes and snapshots, without those whose tags are invalid, which Start has logged. It
// starts no process.
func (h *Host) ManagedVolumes(ctx context.Context) (lvm.ManagedVolumes, error) {
	s, err := h.engine.CachedState(ctx)
	if err != nil {
		return lvm.ManagedVolumes{}, err
	}
	all := lvm.ManagedVolumes{Groups: map[lvm.VGUUID]bool{}, Unread: s.MayLack()}
	for _, g := range s.Groups {
		all.Groups[g.UUID] = true
		add := func(o lvm.ManagedVolume) {
			if o.State == lvm.StateReady || o.State == lvm.StateMoving {
				o.Foreign = o.Cluster != h.engine.Config.Cluster
				all.Owned = append(all.Owned, o)
			}
		}
		for _, v := range g.Volumes() {
			add(lvm.ManagedVolume{Volume: v})
		}
		for _, sn := range g.Snapshots() {
			add(managedSnapshot(sn))
		}
	}
	slices.SortFunc(all.Owned, func(a, b lvm.ManagedVolume) int { return a.ID.Compare(b.ID) })
	return all, nil
}

func managedSnapshot(sn lvm.Snapshot) lvm.ManagedVolume {
	return lvm.ManagedVolume{Snapshot: true, Of: sn.Member.Of, Volume: lvm.Volume{
		ID: sn.ID, UUID: sn.UUID, Name: sn.Name, Claim: sn.Claim, Cluster: sn.Cluster, Group: sn.Group, State: sn.State, Size: sn.Size, Source: sn.Source,
		Class: lvm.Class{Group: string(sn.Group), Layout: lvm.LayoutThin, Pool: sn.Pool, Encryption: sn.Encryption},
	}}
}

// Owns reports whether a block device, by its number, is the volume's, or no longer exists. It asks device-mapper for the
// group's UUID and the volume's name, not LVM: a pod must end whatever state the disks are in. Only if the name differs, as
// after lvrename, it reads the disks for the name in the volume's handle.
func (h *Host) Owns(ctx context.Context, id lvm.ID, device uint64) (bool, error) {
	if unix.Major(device) == 0 { // not a block device: tmpfs, a network file system
		return false, nil
	}
	uuid, name, err := h.engine.Machine.Kernel.Mapping(device)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, lvm.Errorf(lvm.KindInternal, "cannot determine which volume device %s belongs to: %w", dm.FormatNumber(device), err)
	}
	if !strings.HasPrefix(uuid, lvm.DeviceUUID(id.VG, "")) || len(uuid) != len(lvm.DeviceUUID(id.VG, ""))+lvUUIDSize {
		return false, nil
	}
	if mappedLV(name) == id.LV {
		return true, nil
	}
	if h.engine.Machine.Reader == nil {
		return false, nil
	}
	s, err := h.engine.Machine.Reader.Read(ctx)
	if err != nil {
		return false, nil //nolint:nilerr // it has another name, and nothing tells that it had this one
	}
	for _, g := range s.Groups {
		for _, lv := range g.LVs {
			if g.UUID == id.VG && lvm.DeviceUUID(g.UUID, lv.UUID) == uuid {
				return lv.HandleName() == id.LV, nil
			}
		}
	}
	return false, nil
}

// lvUUIDSize is the length of a logical volume's UUID without its hyphens; a hidden layer's device has a suffix after it.
const lvUUIDSize = 32

// mappedLV returns the logical volume's part of a device-mapper name, "vg--a-pvc--1": LVM doubles each hyphen within the two
// names.
func mappedLV(name string) string {
	const hyphen = "\x00"
	_, lv, _ := strings.Cut(strings.ReplaceAll(name, "--", hyphen), "-")
	return strings.ReplaceAll(lv, hyphen, "-")
}
