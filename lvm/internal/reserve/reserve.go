// Package reserve decides on the volumes of one pod together: all of them are planned, and their capacity reserved until they
// are created, or all are refused. It keeps its decisions in memory only.
package reserve

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
)

// The capacity of a peer stays reserved for reserveFor after the last sign that the peer is still wanted on this node, at most
// for reserveMost, and while a request for it is in flight. The scheduler sets the selected node of a pod's claims one after
// the other, and csi-provisioner requests the volumes within a few seconds.
const (
	reserveFor  = 10 * time.Second
	reserveMost = 2 * time.Minute
)

// refusedFor is how long a peer of a refused volume is refused too: the scheduler chose this node for both, and one of them is
// rescheduled.
const refusedFor = 10 * time.Second

// Request is one requested volume with its peers.
type Request struct {
	Spec lvm.Spec
	all  []lvm.Spec // spec and its peers, the largest first: it is the hardest to place
}

func NewRequest(spec lvm.Spec, siblings []lvm.Spec) Request {
	all := []lvm.Spec{spec}
	for _, s := range siblings {
		if !slices.ContainsFunc(all, func(other lvm.Spec) bool { return other.Name == s.Name }) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b lvm.Spec) int {
		return cmp.Or(cmp.Compare(b.Size(), a.Size()), strings.Compare(a.Name, b.Name))
	})
	return Request{spec, all}
}

// Table holds the decisions on pods with several volumes: the capacity reserved for peers of created volumes and for
// volumes that lvcreate is creating, and the peers of refused volumes. It is in memory only. Each decision is one critical
// section. The zero value is ready to use.
type Table struct {
	mu      sync.Mutex
	kept    map[string]reservation // by Spec.Name
	refused map[string]refusal     // by Spec.Name: requests to refuse
	calls   map[string]*call       // by Spec.Name: requests in flight
}

type reservation struct {
	allocation *alloc.Allocation
	until      time.Time
	most       time.Time // the end, however often renew sets until
}

// refusal is why a volume is refused regardless of capacity.
type refusal struct {
	why   error
	until time.Time
}

// call is a request in flight.
type call struct {
	refused error // why its peer was refused meanwhile
}

// Enter registers a request for a volume until leave is called with its outcome. The reservation of a volume outlives a request
// that returns KindBusy, which the caller repeats.
func (r *Table) Enter(spec lvm.Spec) (leave func(error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &call{}
	if was, there := r.refused[spec.Name]; there && time.Now().Before(was.until) {
		c.refused = was.why
	}
	delete(r.refused, spec.Name)
	if r.calls == nil {
		r.calls = map[string]*call{}
	}
	r.calls[spec.Name] = c
	return func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.calls, spec.Name)
		if err == nil || lvm.KindOf(err) != lvm.KindBusy {
			delete(r.kept, spec.Name)
		}
	}
}

// Apply returns the state as if all reserved volumes existed.
func (r *Table) Apply(s lvm.State) lvm.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.without(s, nil)
}

// ApplyFor is Apply for the plan of a change to a volume with this layout, or of a new one, whose reservation is free. A thin volume counts on
// no growth of its pool that is only reserved: its own plan includes that growth.
func (r *Table) ApplyFor(s lvm.State, layout lvm.Layout, created ...lvm.Spec) lvm.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	if layout == lvm.LayoutThin {
		return alloc.WithAllocations(s, withoutGrowth(r.others(s, created)))
	}
	return r.without(s, created)
}

// withoutGrowth returns the allocations without the growth of their pools.
func withoutGrowth(all []*alloc.Allocation) []*alloc.Allocation {
	volumes := make([]*alloc.Allocation, 0, len(all))
	for _, c := range all {
		volume := *c
		volume.Pool = nil
		volumes = append(volumes, &volume)
	}
	return volumes
}

// without is Apply, except for these specs. The caller holds mu.
func (r *Table) without(s lvm.State, specs []lvm.Spec) lvm.State {
	if kept := r.others(s, specs); len(kept) > 0 {
		return alloc.WithAllocations(s, kept)
	}
	return s
}

// others lists what is reserved, except for these specs. The caller holds mu.
func (r *Table) others(s lvm.State, specs []lvm.Spec) (kept []*alloc.Allocation) {
	r.expire()
	for name, res := range r.kept {
		mine := slices.ContainsFunc(specs, func(spec lvm.Spec) bool { return spec.Name == name })
		if !mine && !isMade(res.allocation, s) {
			kept = append(kept, res.allocation)
		}
	}
	slices.SortFunc(kept, func(a, b *alloc.Allocation) int { return strings.Compare(a.Volume.Name, b.Volume.Name) })
	return kept
}

// isMade reports whether the disks have the volume, so that its reservation no longer counts.
func isMade(c *alloc.Allocation, s lvm.State) bool {
	_, _, _, err := s.FindVolume(c.Volume.ID)
	return err == nil
}

// expire drops what has expired. The caller holds mu.
func (r *Table) expire() {
	now := time.Now()
	maps.DeleteFunc(r.kept, func(name string, res reservation) bool { return r.calls[name] == nil && !now.Before(res.until) })
	maps.DeleteFunc(r.refused, func(_ string, was refusal) bool { return !now.Before(was.until) })
}

// Renew extends the reservations of the wanted volumes.
func (r *Table) Renew(wanted func(lvm.Volume) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire()
	for name, res := range r.kept {
		if wanted(res.allocation.Volume) {
			res.until = time.Now().Add(reserveFor)
			if res.most.Before(res.until) {
				res.until = res.most
			}
			r.kept[name] = res
		}
	}
}

// Drop drops the reservations of these volumes.
func (r *Table) Drop(specs ...lvm.Spec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.discard(specs)
}

func (r *Table) discard(specs []lvm.Spec) {
	for _, spec := range specs {
		delete(r.kept, spec.Name)
	}
}

// Plan plans all volumes of the request or none, and returns the placement of the request's volume. With locked (the caller
// holds a group's lock) it reserves capacity for all. Without locked it reserves nothing, and does not refuse a volume with a
// reservation. An earlier call's result for that volume counts even if its peers no longer fit: a request may have got it.
func (r *Table) Plan(s lvm.State, cluster string, p Request, locked bool) (alloc.Placement, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.calls[p.Spec.Name]; c != nil && c.refused != nil {
		r.discard([]lvm.Spec{p.Spec})
		return r.alone(s, cluster, p, lvm.Errorf(lvm.KindInsufficientCapacity, "this node refused another claim of the same pod: %v", c.refused))
	}
	all, placements, err := r.planAll(s, cluster, p)
	kept, promised := r.kept[p.Spec.Name]
	switch {
	case err == nil && locked:
		return placements[r.keep(all, placements)], nil
	case err == nil:
		return placements[all.own()], nil
	case lvm.KindOf(err) != lvm.KindInsufficientCapacity:
		r.discard([]lvm.Spec{p.Spec})
		return alloc.Placement{}, err
	case promised && !locked:
		return alloc.Placement{Create: kept.allocation}, nil
	}
	r.discard(p.all)
	made, err := r.alone(s, cluster, p, err)
	if err != nil {
		r.refuse(p, err)
	}
	return made, err
}

// alone finds what an earlier call created for the request's own volume; otherwise it returns the error refused.
func (r *Table) alone(s lvm.State, cluster string, p Request, refused error) (alloc.Placement, error) {
	if alone, err := alloc.Plan(r.without(s, nil), cluster, []lvm.Spec{p.Spec}); err == nil && alone[0].Create == nil {
		return alone[0], nil
	}
	return alloc.Placement{}, refused
}

// refuse records that a request was refused: each peer is refused once too, even if capacity is free by then. The caller holds
// mu.
func (r *Table) refuse(p Request, why error) {
	for _, spec := range p.all {
		switch c := r.calls[spec.Name]; {
		case spec.Name == p.Spec.Name:
		case c != nil:
			c.refused = why
		default:
			if r.refused == nil {
				r.refused = map[string]refusal{}
			}
			r.refused[spec.Name] = refusal{why, time.Now().Add(refusedFor)}
		}
	}
}

// Fits checks whether the node can hold the request's volumes.
func (r *Table) Fits(s lvm.State, cluster string, p Request) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _, err := r.planAll(s, cluster, p)
	return err
}

// planAll plans all volumes of a request, each next to those before it, or none. It leaves out a peer that is invalid: that
// peer's own request gets the error. The caller holds mu.
func (r *Table) planAll(disks lvm.State, cluster string, p Request) (Request, []alloc.Placement, error) {
	s := r.without(disks, p.all)
	placements, err := alloc.Plan(s, cluster, p.all)
	if err != nil && len(p.all) > 1 && lvm.KindOf(err) != lvm.KindInsufficientCapacity {
		p.all = slices.DeleteFunc(slices.Clone(p.all), func(spec lvm.Spec) bool {
			_, err := alloc.Plan(s, cluster, []lvm.Spec{spec})
			return spec.Name != p.Spec.Name && err != nil && lvm.KindOf(err) != lvm.KindInsufficientCapacity
		})
		placements, err = alloc.Plan(s, cluster, p.all)
	}
	if err != nil && len(p.all) > 1 && lvm.KindOf(err) == lvm.KindInsufficientCapacity {
		err = p.refuse(p.all[len(placements)], err)
	}
	if err == nil {
		err = r.planPool(disks, cluster, p, placements)
	}
	return p, placements, err
}

// planPool plans the request's own thin volume again if the plan counts on growth of its pool for other volumes, which may be requested
// later: its own command makes that growth, too. The caller holds mu.
func (r *Table) planPool(disks lvm.State, cluster string, p Request, placements []alloc.Placement) error {
	own := p.own()
	c := placements[own].Create
	if c == nil || c.Volume.Class.Layout != lvm.LayoutThin {
		return nil
	}
	before := r.others(disks, p.all)
	for _, peer := range placements[:own] {
		if peer.Create != nil {
			before = append(before, peer.Create)
		}
	}
	if !slices.ContainsFunc(before, func(b *alloc.Allocation) bool {
		return b.Pool != nil && b.Group.UUID == c.Group.UUID && b.Pool.Name == c.Volume.Class.Pool
	}) {
		return nil
	}
	s := alloc.WithAllocations(disks, withoutGrowth(before))
	s.Groups = slices.DeleteFunc(s.Groups, func(g lvm.Group) bool { return g.UUID != c.Group.UUID })
	again, err := alloc.Plan(s, cluster, []lvm.Spec{p.Spec})
	if err == nil {
		placements[own] = again[0]
	}
	return err
}

// keep reserves the capacity of the request's volumes that must still be created, including its own: while lvcreate runs, the
// disks do not show it. It clears their refusals, and returns which placement is the request's own. The caller holds mu.
func (r *Table) keep(p Request, placements []alloc.Placement) (mine int) {
	now := time.Now()
	for i, spec := range p.all {
		delete(r.kept, spec.Name)
		delete(r.refused, spec.Name)
		if c := r.calls[spec.Name]; c != nil {
			c.refused = nil
		}
		if c := placements[i].Create; c != nil {
			if r.kept == nil {
				r.kept = map[string]reservation{}
			}
			r.kept[spec.Name] = reservation{c, now.Add(reserveFor), now.Add(reserveMost)}
		}
	}
	return p.own()
}

// own is the index of the request's own volume.
func (p Request) own() int {
	return slices.IndexFunc(p.all, func(spec lvm.Spec) bool { return spec.Name == p.Spec.Name })
}

// refuse words the error for a volume whose peers do not fit together with it.
func (p Request) refuse(unplaceable lvm.Spec, err error) error {
	others := make([]string, 0, len(p.all)-1)
	for _, spec := range p.all {
		if spec.Name != p.Spec.Name {
			others = append(others, spec.Name)
		}
	}
	return lvm.Errorf(lvm.KindInsufficientCapacity, "volume %q must be placed on one node with %s, and this node lacks capacity for all of them: %w",
		p.Spec.Name, strings.Join(others, ", "), &lvm.UnplaceableError{Spec: unplaceable, Err: err})
}
