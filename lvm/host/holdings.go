package host

import (
	"context"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// Holdings lists what bears this driver's mark. It starts no process. What bears a damaged mark is left out; Start has
// told of it.
func (h *Host) Holdings(ctx context.Context) (lvm.Holdings, error) {
	s, err := h.look(ctx)
	if err != nil {
		return lvm.Holdings{}, err
	}
	all := lvm.Holdings{Groups: map[string]bool{}, Unread: s.Unread}
	for _, g := range s.Groups {
		all.Groups[g.UUID] = true
		for _, lv := range g.LVs {
			o, ours := ownedOf(g, lv)
			if ours && o.State == lvm.StateReady {
				o.Foreign = o.Cluster != h.cfg.Cluster
				all.Owned = append(all.Owned, o)
			}
		}
	}
	slices.SortFunc(all.Owned, func(a, b lvm.Owned) int { return strings.Compare(a.ID.String(), b.ID.String()) })
	return all, nil
}

func ownedOf(g lvm.Group, lv lvm.LV) (lvm.Owned, bool) {
	if v, ours, err := lvm.VolumeOf(g, lv); err == nil && ours {
		return lvm.Owned{Volume: v}, true
	}
	sn, ours, err := lvm.SnapshotOf(g, lv)
	if err != nil || !ours {
		return lvm.Owned{}, false
	}
	return lvm.Owned{Snapshot: true, Volume: lvm.Volume{
		ID: sn.ID, UUID: sn.UUID, Name: sn.Name, Cluster: sn.Cluster, Group: sn.Group, State: sn.State, Size: sn.Size, Source: sn.Source,
		Class: lvm.Class{Group: sn.Group, Layout: lvm.LayoutThin, Pool: sn.Pool},
	}}, true
}
