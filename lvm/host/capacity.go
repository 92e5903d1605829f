package host

import (
	"cmp"
	"context"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/reserve"
	"github.com/nodelvm/nodelvm/report"
)

// CapacityByGroup returns the capacity of each volume group that the class selects; Capacity adds them up. The list may be
// empty. KindInvalid: no node can ever serve the class.
func (h *Host) CapacityByGroup(ctx context.Context, class lvm.Class) ([]report.Offer, error) {
	class, err := lvm.CheckClass(class)
	if err != nil {
		return nil, err
	}
	s, err := h.engine.CachedState(ctx)
	if err != nil {
		return nil, err
	}
	return capacityByGroup(h.reserved.Apply(s), class), nil
}

func capacityByGroup(s lvm.State, class lvm.Class) []report.Offer {
	groups, _ := alloc.GroupsOf(s, class) // the class is valid: the only error left is that it selects no group
	list := make([]report.Offer, 0, len(groups))
	for _, g := range groups {
		offer := report.Offer{Group: g.Name}
		err := alloc.CheckAllocatable(s, g, class)
		if err == nil && class.Layout == lvm.LayoutThin {
			_, err = alloc.PoolOf(g, class)
		}
		if err != nil {
			offer.Obstacle = err.Error()
		} else {
			offer.Available = class.DataSize(g.Bytes(alloc.Available(g, class)))
			offer.Largest = class.DataSize(g.Bytes(alloc.Largest(g, class)))
		}
		list = append(list, offer)
	}
	slices.SortFunc(list, func(a, b report.Offer) int { return cmp.Compare(a.Group, b.Group) })
	return list
}

// Capacity returns the class's capacity on this node. It waits for no operation in flight, and starts no process. A class whose
// group is not on this node has no capacity; that is not an error. KindInvalid: no node can ever serve the class.
func (h *Host) Capacity(ctx context.Context, class lvm.Class) (lvm.Capacity, error) {
	if _, err := lvm.CheckClass(class); err != nil {
		return lvm.Capacity{}, err
	}
	s, err := h.engine.CachedState(ctx)
	if err != nil {
		return lvm.Capacity{}, err
	}
	return alloc.Capacity(h.reserved.Apply(s), class)
}

// Fits checks that this node can hold all of these volumes together now: nil, or KindInsufficientCapacity. It reserves nothing,
// and starts no process.
func (h *Host) Fits(ctx context.Context, specs []lvm.Spec) error {
	if len(specs) == 0 {
		return nil
	}
	s, err := h.engine.CachedState(ctx)
	if err != nil {
		return err
	}
	return h.reserved.Fits(s, h.engine.Config.Cluster, reserve.NewRequest(specs[0], specs[1:]))
}
