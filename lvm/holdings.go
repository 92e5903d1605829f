package lvm

import (
	"context"
	"slices"
	"strings"
)

// Holdings lists what bears this driver's mark. It starts no process. What bears a damaged mark is left out; Start has
// told of it.
func (h *Host) Holdings(ctx context.Context) (Holdings, error) {
	s, err := h.look(ctx)
	if err != nil {
		return Holdings{}, err
	}
	all := Holdings{Groups: map[string]bool{}, Unread: s.Unread}
	for _, g := range s.Groups {
		all.Groups[g.UUID] = true
		for _, lv := range g.LVs {
			o, ours := ownedOf(g, lv)
			if ours && o.State == StateReady {
				o.Foreign = o.Cluster != h.cfg.Cluster
				all.Owned = append(all.Owned, o)
			}
		}
	}
	slices.SortFunc(all.Owned, func(a, b Owned) int { return strings.Compare(a.ID.String(), b.ID.String()) })
	return all, nil
}

func ownedOf(g Group, lv LV) (Owned, bool) {
	if v, ours, err := volumeOf(g, lv); err == nil && ours {
		return Owned{Volume: v}, true
	}
	sn, ours, err := snapshotOf(g, lv)
	if err != nil || !ours {
		return Owned{}, false
	}
	return Owned{Snapshot: true, Volume: Volume{
		ID: sn.ID, UUID: sn.UUID, Name: sn.Name, Cluster: sn.Cluster, Group: sn.Group, State: sn.State, Size: sn.Size, Source: sn.Source,
		Class: Class{Group: sn.Group, Layout: LayoutThin, Pool: sn.Pool},
	}}, true
}
