package host

import (
	"context"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
)

// Lookup finds a ready volume. KindNotFound: proven absent, not yet ready, or deleted; KindNotLocal: its group is not on this
// node.
func (h *Host) Lookup(ctx context.Context, id lvm.ID) (lvm.Volume, error) {
	s, err := h.engine.ReadState(ctx)
	if err != nil {
		return lvm.Volume{}, err
	}
	g, _, v, err := s.FindVolume(id)
	if err != nil && g.Unreadable != "" {
		return h.engine.LookupUnreadable(g, id)
	}
	if err == nil && v.State != lvm.StateReady {
		err = engine.NotReady(g, v)
	}
	if err != nil {
		return lvm.Volume{}, err
	}
	return v, nil
}

// List lists the ready volumes of this cluster, ordered by ID.
func (h *Host) List(ctx context.Context) ([]lvm.Volume, error) {
	s, err := h.engine.CachedState(ctx)
	if err != nil {
		return nil, err
	}
	ready := slices.DeleteFunc(h.volumes(s), func(v lvm.Volume) bool { return v.State != lvm.StateReady })
	slices.SortFunc(ready, func(a, b lvm.Volume) int { return strings.Compare(a.ID.String(), b.ID.String()) })
	return ready, nil
}

// volumes lists the volumes of this cluster, in any state. Start has logged those with invalid tags.
func (h *Host) volumes(s lvm.State) (all []lvm.Volume) {
	for _, g := range s.Groups {
		for _, v := range g.Volumes() {
			if v.Cluster == h.engine.Config.Cluster {
				all = append(all, v)
			}
		}
	}
	return all
}
