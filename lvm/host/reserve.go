package host

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

// Room is kept for a volume whose sibling was made for reserveFor after the last sign that the volume is still wanted here,
// and at most for reserveMost: the scheduler names the node on a pod's claims one after the other, and csi-provisioner
// asks for the volumes within a few seconds. It is kept as long as a request for the volume is under way.
const (
	reserveFor  = 10 * time.Second
	reserveMost = 2 * time.Minute
)

// refusedFor is how long a request for a volume is refused because its sibling was refused: the scheduler has sent both
// here, and the sibling goes back.
const refusedFor = 10 * time.Second

// placementRequest is one wanted volume, and those that it is of use only together with.
type placementRequest struct {
	spec lvm.Spec
	all  []lvm.Spec // spec and its siblings, the largest first: it is the hardest to place
}

func newPlacementRequest(spec lvm.Spec, siblings []lvm.Spec) placementRequest {
	all := []lvm.Spec{spec}
	for _, s := range siblings {
		if !slices.ContainsFunc(all, func(other lvm.Spec) bool { return other.Name == s.Name }) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b lvm.Spec) int {
		return cmp.Or(cmp.Compare(b.Size(), a.Size()), strings.Compare(a.Name, b.Name))
	})
	return placementRequest{spec, all}
}

// reservations is what was decided on the volumes of pods with several: the room that is kept for the siblings of volumes
// that were made, for a while, and for a volume that is being made; and who is refused because a sibling was. In memory
// only. Every decision is one critical section. The zero value is ready to use.
type reservations struct {
	mu      sync.Mutex
	kept    map[string]reservation // by Spec.Name
	refused map[string]refusal     // by Spec.Name: whose request is expected
	calls   map[string]*call       // by Spec.Name: requests under way
}

type reservation struct {
	carving *alloc.Allocation
	until   time.Time
	most    time.Time // the end, however often until is set later
}

// refusal is why a volume is refused whatever room there is.
type refusal struct {
	why   error
	until time.Time
}

// call is a request under way.
type call struct {
	refused error // its sibling was refused meanwhile
}

// enter notes a request for a volume until leave is called with its outcome. The room that is kept for a volume outlives a
// request that is to come again.
func (r *reservations) enter(spec lvm.Spec) (leave func(error)) {
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

// in is the state as if everything that room is kept for were made already.
func (r *reservations) in(s lvm.State) lvm.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.without(s, nil)
}

// without is in, but for these specs. The lock must be held.
func (r *reservations) without(s lvm.State, specs []lvm.Spec) lvm.State {
	r.expire()
	var kept []*alloc.Allocation
	for name, res := range r.kept {
		mine := slices.ContainsFunc(specs, func(spec lvm.Spec) bool { return spec.Name == name })
		if !mine && !isMade(res.carving, s) {
			kept = append(kept, res.carving)
		}
	}
	if len(kept) == 0 {
		return s
	}
	slices.SortFunc(kept, func(a, b *alloc.Allocation) int { return strings.Compare(a.Volume.Name, b.Volume.Name) })
	return alloc.WithAllocations(s, kept)
}

// isMade tells whether the disks show the volume: it is not counted twice.
func isMade(c *alloc.Allocation, s lvm.State) bool {
	_, _, _, err := s.FindVolume(c.Volume.ID)
	return err == nil
}

// expire gives up what is no longer wanted. The lock must be held.
func (r *reservations) expire() {
	now := time.Now()
	maps.DeleteFunc(r.kept, func(name string, res reservation) bool { return r.calls[name] == nil && !now.Before(res.until) })
	maps.DeleteFunc(r.refused, func(_ string, was refusal) bool { return !now.Before(was.until) })
}

// renew keeps room for longer for those volumes that are still wanted.
func (r *reservations) renew(wanted func(lvm.Volume) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire()
	for name, res := range r.kept {
		if wanted(res.carving.Volume) {
			res.until = time.Now().Add(reserveFor)
			if res.most.Before(res.until) {
				res.until = res.most
			}
			r.kept[name] = res
		}
	}
}

// drop gives up the room that is kept for these.
func (r *reservations) drop(specs ...lvm.Spec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.discard(specs)
}

func (r *reservations) discard(specs []lvm.Spec) {
	for _, spec := range specs {
		delete(r.kept, spec.Name)
	}
}

// plan plans all volumes of a party or none, and answers what is to be done for the party's own volume. Whoever holds the
// lock of a group decides: the room of all is kept then. Without it nothing is kept, and a volume that room is kept for
// is not refused. What an earlier call made of that volume is dealt with whatever has become of its siblings' room: it
// may have been answered.
func (r *reservations) plan(s lvm.State, cluster string, p placementRequest, locked bool) (alloc.Placement, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.calls[p.spec.Name]; c != nil && c.refused != nil {
		r.discard([]lvm.Spec{p.spec})
		return r.alone(s, cluster, p, lvm.Errorf(lvm.KindInsufficientCapacity, "another claim of the same pod was refused here: %v", c.refused))
	}
	all, placements, err := r.together(s, cluster, p)
	kept, promised := r.kept[p.spec.Name]
	switch {
	case err == nil && locked:
		return placements[r.keep(all, placements)], nil
	case err == nil:
		return placements[all.own()], nil
	case lvm.KindOf(err) != lvm.KindInsufficientCapacity:
		r.discard([]lvm.Spec{p.spec})
		return alloc.Placement{}, err
	case promised && !locked:
		return alloc.Placement{Create: kept.carving}, nil
	}
	r.discard(p.all)
	made, err := r.alone(s, cluster, p, err)
	if err != nil {
		r.refuse(p, err)
	}
	return made, err
}

// alone finds what an earlier call made of the party's own volume; there is none: the error.
func (r *reservations) alone(s lvm.State, cluster string, p placementRequest, refused error) (alloc.Placement, error) {
	if alone, err := alloc.Plan(r.without(s, nil), cluster, []lvm.Spec{p.spec}); err == nil && alone[0].Create == nil {
		return alone[0], nil
	}
	return alloc.Placement{}, refused
}

// refuse notes that a party was refused: its other volumes are too, each once, and whatever room there is when their turn
// comes. The lock must be held.
func (r *reservations) refuse(p placementRequest, why error) {
	for _, spec := range p.all {
		switch c := r.calls[spec.Name]; {
		case spec.Name == p.spec.Name:
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

// room tells whether a party can be had.
func (r *reservations) room(s lvm.State, cluster string, p placementRequest) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _, err := r.together(s, cluster, p)
	return err
}

// together plans all volumes of a party, each beside those before it, or none. A sibling that is wrong in itself is left
// out of the party: its own request gets that error. The lock must be held.
func (r *reservations) together(s lvm.State, cluster string, p placementRequest) (placementRequest, []alloc.Placement, error) {
	s = r.without(s, p.all)
	placements, err := alloc.Plan(s, cluster, p.all)
	if err != nil && len(p.all) > 1 && lvm.KindOf(err) != lvm.KindInsufficientCapacity {
		p.all = slices.DeleteFunc(slices.Clone(p.all), func(spec lvm.Spec) bool {
			_, err := alloc.Plan(s, cluster, []lvm.Spec{spec})
			return spec.Name != p.spec.Name && err != nil && lvm.KindOf(err) != lvm.KindInsufficientCapacity
		})
		placements, err = alloc.Plan(s, cluster, p.all)
	}
	if lvm.KindOf(err) == lvm.KindInsufficientCapacity && len(p.all) > 1 {
		err = p.refuse(p.all[len(placements)], err)
	}
	return p, placements, err
}

// keep keeps the room of the party's volumes that are still to be made, its own until that is made: while lvcreate runs,
// the disks do not show it. None of them is refused any more. It answers which placement is the party's own. The lock
// must be held.
func (r *reservations) keep(p placementRequest, placements []alloc.Placement) (mine int) {
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

// own is the index of the party's own volume.
func (p placementRequest) own() int {
	return slices.IndexFunc(p.all, func(spec lvm.Spec) bool { return spec.Name == p.spec.Name })
}

// refuse says that the volume's siblings have no room together with it.
func (p placementRequest) refuse(misfit lvm.Spec, err error) error {
	others := make([]string, 0, len(p.all)-1)
	for _, spec := range p.all {
		if spec.Name != p.spec.Name {
			others = append(others, spec.Name)
		}
	}
	return lvm.Errorf(lvm.KindInsufficientCapacity, "volume %q must be placed on one node with %s, and this node lacks capacity for all of them: %w",
		p.spec.Name, strings.Join(others, ", "), &lvm.UnplaceableError{Spec: misfit, Err: err})
}
