package lvm

import (
	"fmt"
	"slices"
	"strings"
)

// placement is what is to be done for one Spec: exactly one of the fields is set.
type placement struct {
	ready    *Volume  // it is there and as wanted: nothing is to be done
	finish   *Volume  // it is as wanted, but for its state: to be activated, its head blanked, and marked ready
	leftover *Volume  // an earlier attempt that was cut off, or that nobody zeroes any more: to be removed, then planned anew
	carve    *carving // to be made
}

// plan decides what is to be done for each of the specs, as if they were made one after the other. Either all of them
// can be had or the first reason why not is returned: KindInvalid and KindOutOfRange for specs that are wrong in
// themselves, KindExists, KindBusy, and KindInsufficientCapacity where this node cannot help. What was planned before that one is returned
// with it.
func plan(s State, cluster string, specs []Spec) ([]placement, error) {
	s = s.clone()
	placements := make([]placement, 0, len(specs))
	for _, spec := range specs {
		spec, err := checkSpec(spec)
		if err != nil {
			return placements, err
		}
		p, err := place(s, cluster, spec)
		if err != nil {
			return placements, err
		}
		if p.carve != nil {
			takeCarving(s, p.carve)
		}
		placements = append(placements, p)
	}
	return placements, nil
}

func place(s State, cluster string, spec Spec) (placement, error) {
	groups, err := groupsOf(s, spec.Class)
	if err != nil {
		return placement{}, err
	}
	found, err := find(s, cluster, groups, spec)
	switch {
	case err != nil:
		return placement{}, err
	case found == nil:
		c, err := carve(s, cluster, groups, spec)
		return placement{carve: c}, err
	case found.State == StateReady:
		return placement{ready: found}, compatible(*found, spec, groups)
	}
	g, lv, _, err := s.find(found.ID)
	if err == nil && complete(g, lv, *found) {
		return placement{finish: found}, compatible(*found, spec, groups)
	}
	return placement{leftover: found}, err
}

// complete tells whether a volume that is marked as creating lacks nothing but that mark: it may have been answered to
// its user, who must find it again. Any other one never was. A copy is not complete before it is marked, since its
// content belongs to one moment.
func complete(g Group, lv LV, v Volume) bool {
	return v.State == StateCreating && !lv.Pending && !g.cutOff(lv) && v.Source == ID{} && strings.HasPrefix(lv.Type, string(v.Class.Layout))
}

// find looks for the volume of this spec's name in every group of the node: it may have been made in another one than
// is asked for now. A foreign volume of the name matters only where ours would be made.
func find(s State, cluster string, groups []Group, spec Spec) (*Volume, error) {
	name := lvName(spec.Name)
	for _, g := range s.Groups {
		if lv := g.renamed(spec.Name, name, cluster); lv != nil {
			return nil, Errorf(KindExists, "volume %q cannot be made: it is there, as %s/%s, by its tags: rename that back (lvrename %s %s %s), or give it up", spec.Name, g.Name, lv.Name, g.Name, lv.Name, g.handleOf(*lv))
		}
		i := slices.IndexFunc(g.LVs, func(lv LV) bool { return lv.Name == name })
		if i < 0 {
			continue
		}
		v, ours, err := volumeOf(g, g.LVs[i])
		wanted := slices.ContainsFunc(groups, func(c Group) bool { return c.UUID == g.UUID })
		switch {
		case err != nil:
			return nil, Errorf(KindExists, "volume %q cannot be made: %w", spec.Name, err)
		case ours && v.Name == spec.Name && v.Cluster == cluster:
			if v.State == StateDeleting {
				return nil, Errorf(KindBusy, "volume %q was deleted and %s/%s is still being wiped: ask again when that has ended", spec.Name, g.Name, name)
			}
			return &v, nil
		case wanted && ours:
			return nil, Errorf(KindExists, "volume %q cannot be made: %s/%s is the volume %q of the cluster %q", spec.Name, g.Name, name, v.Name, v.Cluster)
		case wanted:
			return nil, Errorf(KindExists, "volume %q cannot be made: %s/%s exists and is not a volume of this driver: rename or remove it", spec.Name, g.Name, name)
		}
	}
	return nil, nil
}

// compatible tells whether a volume that is there is what the spec asks for (CSI spec, CreateVolume: ALREADY_EXISTS).
func compatible(v Volume, spec Spec, groups []Group) error {
	size, required := apart(v.Size, spec.Required)
	taken := func(format string, args ...any) error {
		return Errorf(KindExists, "volume %q is already there as %s/%s, but %s", spec.Name, v.Group, v.ID.LV, fmt.Sprintf(format, args...))
	}
	switch {
	case !slices.ContainsFunc(groups, func(g Group) bool { return g.UUID == v.ID.VG }):
		return taken("not in the volume group %q that is asked for now", spec.Class.Group)
	case v.Class.anywhere() != spec.Class.anywhere():
		return taken("with %s, not %s", v.Class.words(), spec.Class.words())
	case spec.Block && !v.Block:
		return taken("made for a file system, and not zeroed: its device could show what its extents held before")
	case v.Source != spec.Source:
		return taken("it began as %s, and %s is asked for now", v.Source.words(), spec.Source.words())
	case v.Size < spec.Required:
		return taken("with %s, less than the %s that are asked for now", size, required)
	case spec.Limit > 0 && v.Size > spec.Limit:
		return taken("with %s, more than the limit of %s that is asked for now", v.Size, spec.Limit)
	}
	return nil
}

// placementGroup is the UUID of the group that a placement would change.
func placementGroup(p placement) string {
	switch {
	case p.leftover != nil:
		return p.leftover.ID.VG
	case p.finish != nil:
		return p.finish.ID.VG
	default:
		return p.carve.group.UUID
	}
}
