package lvm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// placement is what is to be done for one Spec: exactly one of the fields is set.
type placement struct {
	ready    *Volume  // it is there and as wanted: nothing is to be done
	leftover *Volume  // an earlier attempt that never became ready: to be removed, then planned anew
	carve    *carving // to be made
	finish   *Volume  // creating on the disks, structurally complete, and as wanted: to be activated, blanked, marked ready
}

// carving is a volume that is to be made.
type carving struct {
	group   Group // as it was read
	extents Extents
	ranges  []peRange
	volume  Volume // without a UUID, which LVM gives
}

// step is one LVM process of a plan. Every step but a plan's last may be repeated, or left standing, without harm.
type step struct{ argv []string }

// steps are the commands that make the volume, in order.
func (c *carving) steps() ([]step, error) {
	t, err := targetOf(c.group.Name, c.volume.ID.LV)
	if err != nil {
		return nil, err
	}
	return []step{{createArgs(t, c)}}, nil
}

// peRange is a stretch of physical extents, both ends included, as lvcreate(8) takes it: PV:first-last.
type peRange struct {
	device      string
	first, last Extents
}

// plan decides what is to be done for each of the specs, as if they were made one after the other. Either all of them
// can be had or the first reason why not is returned: KindInvalid and KindOutOfRange for specs that are wrong in
// themselves, KindExists, KindBusy, and KindNoRoom where this node cannot help.
func plan(s State, cluster string, specs []Spec) ([]placement, error) {
	s = s.clone()
	placements := make([]placement, 0, len(specs))
	for _, spec := range specs {
		spec, err := checkSpec(spec)
		if err != nil {
			return nil, err
		}
		p, err := place(s, cluster, spec)
		if err != nil {
			return nil, err
		}
		if p.carve != nil {
			s.take(p.carve)
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
	case found.State == StateCreating:
		return placement{leftover: found}, nil
	default:
		return placement{ready: found}, compatible(*found, spec, groups)
	}
}

// find looks for the volume of this spec's name in every group of the node: it may have been made in another one than
// is asked for now. A foreign volume of the name matters only where ours would be made.
func find(s State, cluster string, groups []Group, spec Spec) (*Volume, error) {
	name := lvName(spec.Name)
	for _, g := range s.Groups {
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
	taken := func(format string, args ...any) error {
		return Errorf(KindExists, "volume %q is already there as %s/%s, but %s", spec.Name, v.Group, v.ID.LV, fmt.Sprintf(format, args...))
	}
	switch {
	case !slices.ContainsFunc(groups, func(g Group) bool { return g.UUID == v.ID.VG }):
		return taken("not in the volume group %q that is asked for now", spec.Class.Group)
	case v.Class.Layout != spec.Class.Layout:
		return taken("with the layout %s, not %s", v.Class.Layout, spec.Class.Layout)
	case v.Class.Wipe != spec.Class.Wipe:
		return taken("with wipe: %s, not %s", v.Class.Wipe, spec.Class.Wipe)
	case v.Size < spec.Required:
		return taken("with %s, less than the %s that are asked for now", v.Size, spec.Required)
	case spec.Limit > 0 && v.Size > spec.Limit:
		return taken("with %s, more than the limit of %s that is asked for now", v.Size, spec.Limit)
	}
	return nil
}

// carve chooses the group and the extents. Of several groups behind a tag it takes the one whose free extents the
// volume leaves least of: the large holes stay for the large volumes, so what Capacity answered as Largest stays true
// as long as it can.
func carve(s State, cluster string, groups []Group, spec Spec) (*carving, error) {
	var best *carving
	var left Bytes
	var refusals []error
	for _, g := range groups {
		c, err := carveIn(s, cluster, g, spec)
		if err != nil {
			refusals = append(refusals, err)
			continue
		}
		if l := g.bytes(largest(g) - c.extents); best == nil || l < left {
			best, left = c, l
		}
	}
	if best != nil {
		return best, nil
	}
	return nil, refuse(spec, refusals)
}

// refuse joins what each group said. Only if no group could ever meet the size is the request itself out of range.
func refuse(spec Spec, refusals []error) error {
	kind := KindOutOfRange
	words := make([]string, 0, len(refusals))
	for _, err := range refusals {
		if KindOf(err) != KindOutOfRange {
			kind = KindNoRoom
		}
		words = append(words, err.Error())
	}
	if len(refusals) == 0 {
		return noGroup(spec.Class)
	}
	if kind == KindOutOfRange {
		return Errorf(kind, "volume %q: %s", spec.Name, strings.Join(words, "; "))
	}
	return Errorf(kind, "no room for volume %q with %s: %s", spec.Name, spec.size(), strings.Join(words, "; "))
}

func carveIn(s State, cluster string, g Group, spec Spec) (*carving, error) {
	if err := obstacle(s, g); err != nil {
		return nil, err
	}
	extents, err := spec.extents(g)
	if err != nil {
		return nil, err
	}
	ranges := linearRanges(g, extents)
	if ranges == nil {
		return nil, Errorf(KindNoRoom, "volume group %s can give at most %s in one volume", g.Name, g.bytes(largest(g)))
	}
	return &carving{group: g, extents: extents, ranges: ranges, volume: Volume{
		ID:      ID{VG: g.UUID, LV: lvName(spec.Name)},
		Name:    spec.Name,
		Claim:   spec.Claim,
		Cluster: cluster,
		Group:   g.Name,
		Class:   Class{Group: g.Name, Layout: spec.Class.Layout, Wipe: spec.Class.Wipe},
		State:   StateCreating,
		Size:    g.bytes(extents),
	}}, nil
}

// groupsOf finds the groups behind a class. A name that two groups carry is no answer at all.
func groupsOf(s State, class Class) ([]Group, error) {
	if err := checkGroup(class.Group); err != nil {
		return nil, err
	}
	tag, isTag := strings.CutPrefix(class.Group, "@")
	var groups []Group
	for _, g := range s.Groups {
		if isTag && slices.Contains(g.Tags, tag) || !isTag && g.Name == class.Group {
			groups = append(groups, g)
		}
	}
	if len(groups) == 0 {
		return nil, noGroup(class)
	}
	return groups, nil
}

// errNoGroup marks the refusal of a class that has no group on this node.
var errNoGroup = errors.New("no such volume group")

func noGroup(class Class) error {
	if tag, isTag := strings.CutPrefix(class.Group, "@"); isTag {
		return Errorf(KindNoRoom, "%w: none on this node carries the tag %q (vgchange --addtag %s GROUP gives it)", errNoGroup, tag, tag)
	}
	return Errorf(KindNoRoom, "%w: this node has none named %q", errNoGroup, class.Group)
}
