package host

import (
	"context"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// ManagedVolumes lists the managed volumes and snapshots, without those whose tags are invalid, which Start has logged. It
// starts no process.
func (h *Host) ManagedVolumes(ctx context.Context) (lvm.ManagedVolumes, error) {
	s, err := h.engine.CachedState(ctx)
	if err != nil {
		return lvm.ManagedVolumes{}, err
	}
	all := lvm.ManagedVolumes{Groups: map[lvm.VGUUID]bool{}, Unread: s.Unread()}
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
	slices.SortFunc(all.Owned, func(a, b lvm.ManagedVolume) int { return strings.Compare(a.ID.String(), b.ID.String()) })
	return all, nil
}

func managedSnapshot(sn lvm.Snapshot) lvm.ManagedVolume {
	return lvm.ManagedVolume{Snapshot: true, Of: sn.Member.Of, Volume: lvm.Volume{
		ID: sn.ID, UUID: sn.UUID, Name: sn.Name, Cluster: sn.Cluster, Group: sn.Group, State: sn.State, Size: sn.Size, Source: sn.Source,
		Class: lvm.Class{Group: string(sn.Group), Layout: lvm.LayoutThin, Pool: sn.Pool, Encryption: sn.Encryption},
	}}
}
