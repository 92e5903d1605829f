package alloc

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// Placement is the action for one Spec: exactly one field is set.
type Placement struct {
	Ready    *lvm.Volume // it exists as requested: no action
	Finish   *lvm.Volume // it exists as requested, but not ready: activate it, wipe its head, mark it ready
	Leftover *lvm.Volume // an earlier attempt that was killed, or whose zeroing stopped: remove it, then plan again
	Create   *Allocation
}

// Plan decides the action for each spec, as if the volumes were created one after the other. It plans all of them or returns
// the first refusal, with the placements before it. KindInvalid, KindOutOfRange: a spec is wrong in itself; KindExists,
// KindBusy; KindInsufficientCapacity: this node cannot help.
func Plan(s lvm.State, cluster string, specs []lvm.Spec) ([]Placement, error) {
	s = s.Clone()
	placements := make([]Placement, 0, len(specs))
	for _, spec := range specs {
		spec, err := lvm.CheckSpec(spec)
		if err != nil {
			return placements, err
		}
		p, err := place(s, cluster, spec)
		if err != nil {
			return placements, err
		}
		if p.Create != nil {
			ApplyAllocation(s, p.Create)
		}
		placements = append(placements, p)
	}
	return placements, nil
}

func place(s lvm.State, cluster string, spec lvm.Spec) (Placement, error) {
	groups, err := GroupsOf(s, spec.Class)
	if err != nil {
		return Placement{}, err
	}
	found, err := find(s, cluster, groups, spec)
	switch {
	case err != nil:
		return Placement{}, err
	case found == nil:
		c, err := allocate(s, cluster, groups, spec)
		return Placement{Create: c}, err
	case found.State.IsMove():
		return Placement{}, lvm.Errorf(lvm.KindExists, "volume %q already exists: %w", spec.Name, found.CheckNoMove("used"))
	case found.State == lvm.StateReady:
		return Placement{Ready: found}, Compatible(*found, spec, groups)
	}
	g, lv, _, err := s.FindVolume(found.ID)
	if err == nil && Complete(g, lv, *found) {
		return Placement{Finish: found}, Compatible(*found, spec, groups)
	}
	return Placement{Leftover: found}, err
}

// Complete reports whether a creating volume lacks only the ready tag: a request may have been answered with it, and a retry
// must find it. No request was answered with any other creating volume. A clone is incomplete until its tag is ready, since its
// content belongs to one moment.
func Complete(g lvm.Group, lv lvm.LV, v lvm.Volume) bool {
	return v.State == lvm.StateCreating && !lv.Pending && !g.HasPendingCreate(lv) && v.Source == lvm.ID{} && strings.HasPrefix(lv.Type, string(v.Class.Layout))
}

// find returns the volume with the spec's name in any of the node's volume groups, since an earlier request may have named
// another group. A volume of another cluster, or an unmanaged one, matters only in the spec's groups.
func find(s lvm.State, cluster string, groups []lvm.Group, spec lvm.Spec) (*lvm.Volume, error) {
	name := lvm.LVName(spec.Name)
	for _, g := range s.Groups {
		if lv := g.FindRenamed(spec.Name, name, cluster); lv != nil {
			return nil, lvm.Errorf(lvm.KindExists, "cannot create volume %q: it exists and was renamed to %s/%s: rename it back (lvrename %s %s %s), or remove it", spec.Name, g.Name, lv.Name, g.Name, lv.Name, lv.HandleName())
		}
		i := slices.IndexFunc(g.LVs, func(lv lvm.LV) bool { return lv.Name == name })
		if i < 0 {
			continue
		}
		v, ours := g.LVs[i].AsVolume()
		err := g.LVs[i].CheckTags()
		wanted := slices.ContainsFunc(groups, func(c lvm.Group) bool { return c.UUID == g.UUID })
		switch {
		case err != nil:
			return nil, lvm.Errorf(lvm.KindExists, "cannot create volume %q: %w", spec.Name, err)
		case ours && v.Name == spec.Name && v.Cluster == cluster:
			if v.State == lvm.StateDeleting {
				return nil, lvm.Errorf(lvm.KindBusy, "volume %q was deleted, and %s/%s is still being wiped: retry when that has ended", spec.Name, g.Name, name)
			}
			return &v, nil
		case wanted && ours:
			return nil, lvm.Errorf(lvm.KindExists, "cannot create volume %q: %s/%s is the volume %q of the cluster %q", spec.Name, g.Name, name, v.Name, v.Cluster)
		case wanted:
			return nil, lvm.Errorf(lvm.KindExists, "cannot create volume %q: %s/%s exists and is not a managed volume: rename or remove it", spec.Name, g.Name, name)
		}
	}
	return nil, nil
}

// Compatible checks that an existing volume is what the spec requests (CSI spec, CreateVolume: ALREADY_EXISTS).
func Compatible(v lvm.Volume, spec lvm.Spec, groups []lvm.Group) error {
	size, required := apart(v.Size, spec.Required)
	taken := func(format string, args ...any) error {
		return lvm.Errorf(lvm.KindExists, "volume %q already exists as %s/%s, but %s", spec.Name, v.Group, v.ID.LV, fmt.Sprintf(format, args...))
	}
	switch {
	case !slices.ContainsFunc(groups, func(g lvm.Group) bool { return g.UUID == v.ID.VG }):
		return taken("the request is for volume group %q", spec.Class.Group)
	case v.Class.WithoutGroup() != spec.Class.WithoutGroup():
		return taken("with %s, not %s", v.Class.Description(), spec.Class.Description())
	case spec.Block && !v.Block:
		return taken("for a file system and not zeroed: as a raw block volume it could show earlier data")
	case v.Source != spec.Source:
		return taken("it was created as %s, and the request is for %s", v.Source.Description(), spec.Source.Description())
	case v.Access.ReadOnly() != spec.Access.ReadOnly():
		return taken("it is %s, and the request is for a volume that is %s", v.Access.Description(), spec.Access.Description())
	case v.Size < spec.Required:
		return taken("with %s, less than the requested %s", size, required)
	case spec.Limit > 0 && v.Size > spec.Limit:
		return taken("with %s, more than the requested limit of %s", v.Size, spec.Limit)
	}
	return nil
}

// PlacementGroup returns the UUID of the volume group that a placement changes.
func PlacementGroup(p Placement) lvm.VGUUID {
	switch {
	case p.Leftover != nil:
		return p.Leftover.ID.VG
	case p.Finish != nil:
		return p.Finish.ID.VG
	default:
		return p.Create.Group.UUID
	}
}

// GroupsOf returns the volume groups of a class. If two have its name, it returns both, and CheckAllocatable refuses them.
func GroupsOf(s lvm.State, class lvm.Class) ([]lvm.Group, error) {
	if err := lvm.CheckGroup(class.Group); err != nil {
		return nil, err
	}
	tag, isTag := strings.CutPrefix(class.Group, "@")
	var groups []lvm.Group
	for _, g := range s.Groups {
		if isTag && slices.Contains(g.Tags, tag) || !isTag && string(g.Name) == class.Group {
			groups = append(groups, g)
		}
	}
	if len(groups) == 0 {
		return nil, noGroup(class)
	}
	return groups, nil
}

// ErrNoGroup is in the chain of the error for a class without a volume group on this node.
var ErrNoGroup = errors.New("no such volume group")

func noGroup(class lvm.Class) error {
	if tag, isTag := strings.CutPrefix(class.Group, "@"); isTag {
		return lvm.Errorf(lvm.KindInsufficientCapacity, "%w: no group on this node has the tag %q (add it with vgchange --addtag %s GROUP)", ErrNoGroup, tag, tag)
	}
	return lvm.Errorf(lvm.KindInsufficientCapacity, "%w: no group on this node has the name %q", ErrNoGroup, class.Group)
}
