package groupsnap

import (
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// plan is the action for one GroupSnapshotSpec: ready, leftover or members is set.
type plan struct {
	ready    *lvm.GroupSnapshot // it exists: no action
	leftover *lvm.GroupSnapshot // an earlier attempt that never became ready: remove it, then plan again
	members  []lvm.SnapshotSpec // to create, in this order
}

// groupsOf returns the volume groups of the sources, in ascending order.
func groupsOf(sources []lvm.ID) []lvm.VGUUID {
	var groups []lvm.VGUUID
	for _, source := range sources {
		groups = append(groups, source.VG)
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}

// check returns the spec with ordered sources. KindInvalid: no node can serve it.
func check(spec lvm.GroupSnapshotSpec) (lvm.GroupSnapshotSpec, error) {
	if err := lvm.CheckName("group snapshot", spec.Name); err != nil {
		return spec, err
	}
	spec.Sources = slices.Clone(spec.Sources)
	slices.SortFunc(spec.Sources, func(a, b lvm.ID) int { return strings.Compare(a.String(), b.String()) })
	switch n := len(spec.Sources); {
	case n == 0:
		return spec, lvm.Errorf(lvm.KindInvalid, "group snapshot %q: the request names no volume", spec.Name)
	case n > lvm.MaxGroupMembers:
		return spec, lvm.Errorf(lvm.KindInvalid, "group snapshot %q: %d volumes are more than %d, the maximum: select fewer claims by a narrower label", spec.Name, n, lvm.MaxGroupMembers)
	case len(slices.Compact(slices.Clone(spec.Sources))) < n:
		return spec, lvm.Errorf(lvm.KindInvalid, "group snapshot %q: the request names a volume twice", spec.Name)
	}
	return spec, nil
}

// find returns the group snapshot of a name, whichever volumes it has; nil: there is none.
func find(s lvm.State, cluster, name string) (*lvm.GroupSnapshot, error) {
	lv := lvm.GroupSnapshotName(name)
	for _, g := range s.Groups {
		for _, sn := range g.Snapshots() {
			if sn.Member.Of.LV != lv || sn.Cluster != cluster {
				continue
			}
			found, err := s.FindGroupSnapshot(sn.Member.Of)
			if err != nil && lvm.KindOf(err) == lvm.KindNotFound {
				return nil, lvm.Errorf(lvm.KindConflict, "group snapshot %q: its first snapshot is gone, and others exist, for example %s/%s: remove these (lvremove), or use another name", name, g.Name, sn.ID.LV)
			}
			return &found, err
		}
	}
	return nil, nil
}

// decide plans a checked spec. KindExists: a group snapshot of other volumes has the name; KindBusy, KindConflict: as find.
func decide(s lvm.State, cluster string, spec lvm.GroupSnapshotSpec) (plan, error) {
	found, err := find(s, cluster, spec.Name)
	switch {
	case err != nil:
		return plan{}, err
	case found != nil && found.State != lvm.StateReady:
		return plan{leftover: found}, nil
	case found != nil:
		return plan{ready: found}, checkSame(*found, spec)
	}
	id, groups := spec.ID(), groupsOf(spec.Sources)
	var others []string
	for _, group := range groups {
		if group != id.VG {
			others = append(others, string(group))
		}
	}
	var p plan
	for i, source := range spec.Sources {
		if _, lv, v, err := s.FindVolume(source); err == nil { // the plan of each snapshot reports any other error
			if err := v.CheckCopies(lv); err != nil {
				return plan{}, lvm.Errorf(lvm.KindOf(err), "cannot create group snapshot %q: %w", spec.Name, err)
			}
		}
		member := lvm.GroupMember{Of: id}
		if i == 0 {
			member.Name, member.Count, member.Others = spec.Name, len(spec.Sources), strings.Join(others, ":")
		}
		p.members = append(p.members, lvm.SnapshotSpec{Name: lvm.MemberName(id.LV, i), Source: source, Member: member})
	}
	for _, tag := range lvm.SnapshotTags(lvm.Snapshot{Name: p.members[0].Name, Member: p.members[0].Member}) {
		if len(tag) > lvm.MaxTag {
			return plan{}, lvm.Errorf(lvm.KindInvalid, "group snapshot %q: its volumes are in %d volume groups, too many for one group snapshot", spec.Name, len(groups))
		}
	}
	return p, nil
}

// checkSame returns nil if a ready group snapshot is the requested one.
func checkSame(found lvm.GroupSnapshot, spec lvm.GroupSnapshotSpec) error {
	first := found.First()
	if first == nil || len(found.Members) < first.Member.Count {
		return lvm.Errorf(lvm.KindBusy, "group snapshot %q exists, but %d of its snapshots cannot be read: a volume group is missing, or an admin removed them", spec.Name, missing(found))
	}
	same := slices.EqualFunc(found.Members, spec.Sources, func(sn lvm.Snapshot, source lvm.ID) bool { return sn.Source == source })
	if !same {
		return lvm.Errorf(lvm.KindExists, "group snapshot %q already exists, but of other volumes: use another name", spec.Name)
	}
	return nil
}

// missing counts the members of a group snapshot that are not among the readable ones.
func missing(found lvm.GroupSnapshot) int {
	if first := found.First(); first != nil {
		return first.Member.Count - len(found.Members)
	}
	return 0
}
