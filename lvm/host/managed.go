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
	all := lvm.ManagedVolumes{Groups: map[lvm.VGUUID]bool{}, Unread: s.UnreadDevices}
	for _, g := range s.Groups {
		all.Groups[g.UUID] = true
		for _, lv := range g.LVs {
			o, ours := managedVolume(g, lv)
			if ours && o.State == lvm.StateReady {
				o.Foreign = o.Cluster != h.engine.Config.Cluster
				all.Owned = append(all.Owned, o)
			}
		}
	}
	slices.SortFunc(all.Owned, func(a, b lvm.ManagedVolume) int { return strings.Compare(a.ID.String(), b.ID.String()) })
	return all, nil
}

func managedVolume(g lvm.Group, lv lvm.LV) (lvm.ManagedVolume, bool) {
	if v, ours, err := lvm.VolumeOf(g, lv); err == nil && ours {
		return lvm.ManagedVolume{Volume: v}, true
	}
	sn, ours, err := lvm.SnapshotOf(g, lv)
	if err != nil || !ours {
		return lvm.ManagedVolume{}, false
	}
	return lvm.ManagedVolume{Snapshot: true, Volume: lvm.Volume{
		ID: sn.ID, UUID: sn.UUID, Name: sn.Name, Cluster: sn.Cluster, Group: sn.Group, State: sn.State, Size: sn.Size, Source: sn.Source,
		Class: lvm.Class{Group: string(sn.Group), Layout: lvm.LayoutThin, Pool: sn.Pool, Encryption: sn.Encryption},
	}}, true
}
