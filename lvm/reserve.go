package lvm

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

// reserveFor is how long room is kept for a volume whose sibling was made; another call of any sibling begins it anew.
const reserveFor = 2 * time.Minute

// party is one wanted volume, and those that it is of use only together with.
type party struct {
	spec Spec
	all  []Spec // spec and its siblings, the largest first: it is the hardest to place
}

func newParty(spec Spec, siblings []Spec) party {
	all := []Spec{spec}
	for _, s := range siblings {
		if !slices.ContainsFunc(all, func(other Spec) bool { return other.Name == s.Name }) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b Spec) int {
		return cmp.Or(cmp.Compare(b.size(), a.size()), strings.Compare(a.Name, b.Name))
	})
	return party{spec, all}
}

// reservations is the room that is kept for the siblings of volumes that were made: in memory, for a while. The zero
// value is ready to use.
type reservations struct {
	mu   sync.Mutex
	kept map[string]reservation // by Spec.Name
}

type reservation struct {
	carving *carving
	until   time.Time
}

// in is the state as if everything that room is kept for were made already.
func (r *reservations) in(s State) State { return r.without(s, nil) }

// without is in, but for these specs.
func (r *reservations) without(s State, specs []Spec) State {
	r.mu.Lock()
	defer r.mu.Unlock()
	var kept []*carving
	for name, res := range r.kept {
		if time.Now().After(res.until) {
			delete(r.kept, name)
		} else if !slices.ContainsFunc(specs, func(spec Spec) bool { return spec.Name == name }) {
			kept = append(kept, res.carving)
		}
	}
	if len(kept) == 0 {
		return s
	}
	slices.SortFunc(kept, func(a, b *carving) int { return strings.Compare(a.volume.Name, b.volume.Name) })
	return s.reserve(kept)
}

// drop gives up the room that is kept for these.
func (r *reservations) drop(specs ...Spec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, spec := range specs {
		delete(r.kept, spec.Name)
	}
}

// plan plans all volumes of a party or none, keeps the siblings' room, and answers what is to be done for the party's own
// volume. What an earlier call made of that one is dealt with whatever has become of its siblings' room: it may have been
// answered.
func (r *reservations) plan(s State, cluster string, p party) (placement, error) {
	all, placements, err := r.together(s, cluster, p)
	if err == nil {
		return placements[r.keep(all, placements)], nil
	}
	r.drop(p.spec)
	if KindOf(err) != KindNoRoom {
		return placement{}, err
	}
	r.drop(p.all...)
	if alone, err := plan(r.in(s), cluster, []Spec{p.spec}); err == nil && alone[0].carve == nil {
		return alone[0], nil
	}
	return placement{}, err
}

// together plans all volumes of a party, each beside those before it, or none. A sibling that is wrong in itself is left
// out of the party: its own request is told so.
func (r *reservations) together(s State, cluster string, p party) (party, []placement, error) {
	s = r.without(s, p.all)
	placements, err := plan(s, cluster, p.all)
	if err != nil && len(p.all) > 1 && KindOf(err) != KindNoRoom {
		p.all = slices.DeleteFunc(slices.Clone(p.all), func(spec Spec) bool {
			_, err := plan(s, cluster, []Spec{spec})
			return spec.Name != p.spec.Name && err != nil && KindOf(err) != KindNoRoom
		})
		placements, err = plan(s, cluster, p.all)
	}
	if KindOf(err) == KindNoRoom && len(p.all) > 1 {
		err = p.refuse(p.all[len(placements)], err)
	}
	return p, placements, err
}

// keep keeps the room of the party's siblings that are still to be made. It answers which placement is the party's own.
func (r *reservations) keep(p party, placements []placement) (mine int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, spec := range p.all {
		if spec.Name == p.spec.Name {
			mine = i
			continue
		}
		delete(r.kept, spec.Name)
		if c := placements[i].carve; c != nil {
			if r.kept == nil {
				r.kept = map[string]reservation{}
			}
			r.kept[spec.Name] = reservation{c, time.Now().Add(reserveFor)}
		}
	}
	return mine
}

// Misfit is in the chain of the error (KindNoRoom) that refuses volumes which are of use only together.
type Misfit struct {
	Spec Spec // the one of them that found no room beside the larger ones
	err  error
}

func (m *Misfit) Error() string { return m.err.Error() }
func (m *Misfit) Unwrap() error { return m.err }

// refuse says that the volume's siblings have no room together with it.
func (p party) refuse(misfit Spec, err error) error {
	others := make([]string, 0, len(p.all)-1)
	for _, spec := range p.all {
		if spec.Name != p.spec.Name {
			others = append(others, spec.Name)
		}
	}
	return Errorf(KindNoRoom, "volume %q is only of use together with %s, and not all of them can be had here: %w",
		p.spec.Name, strings.Join(others, ", "), &Misfit{misfit, err})
}
