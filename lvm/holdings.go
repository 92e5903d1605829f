package lvm

import (
	"context"
	"slices"
	"strings"
)

// Holdings are what this driver, in whichever cluster, has on the node's disks.
type Holdings struct {
	Owned  []Owned         // what is ready, by ID
	Groups map[string]bool // the UUIDs of the groups that are here
	Unread []string        // as in State: groups on these devices may be missing here
}

// Owned is a volume or a snapshot.
type Owned struct {
	Volume        // of a snapshot: with its name as the volume's, and no claim
	Snapshot bool // it is a snapshot
	Foreign  bool // another cluster made it: Volume.Cluster is its UID
}

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
