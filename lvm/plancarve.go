package lvm

import (
	"slices"
	"strings"
)

// carving is a volume that is to be made.
type carving struct {
	group   Group  // as it was read, less what earlier volumes of the same plan take
	volume  Volume // as it will be: creating, and without the UUID that LVM gives
	extents Extents
	ranges  []peRange   // on exactly these; striped and RAID: one for each leg; thin: none
	pool    *poolGrowth // thin: what is done to its pool before
	source  *LV         // thin: what it begins as a copy of
}

// carve chooses the group and the extents. Of several groups behind a tag it takes the one whose free extents the
// volume leaves least of: the large holes stay for the large volumes, so what Capacity answered as Largest stays true
// as long as it can.
func carve(s State, cluster string, groups []Group, spec Spec) (*carving, error) {
	if spec.Source != (ID{}) {
		return carveCopy(s, cluster, groups, spec)
	}
	var best *carving
	var left Bytes
	var refusals []error
	for _, g := range groups {
		c, err := carveIn(s, cluster, g, spec)
		if err != nil {
			refusals = append(refusals, err)
			continue
		}
		if l := g.bytes(largest(g, spec.Class) - c.extents); best == nil || l < left {
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
			kind = KindInsufficientCapacity
		}
		words = append(words, err.Error())
	}
	if len(refusals) == 0 {
		return noGroup(spec.Class)
	}
	if kind == KindOutOfRange {
		return Errorf(kind, "volume %q: %s", spec.Name, strings.Join(words, "; "))
	}
	return Errorf(kind, "no room for volume %q with %s: %s", spec.Name, spec.Size(), strings.Join(words, "; "))
}

func carveIn(s State, cluster string, g Group, spec Spec) (*carving, error) {
	if err := obstacle(s, g, spec.Class); err != nil {
		return nil, err
	}
	extents, err := spec.extents(g)
	if err != nil {
		return nil, err
	}
	c := &carving{group: g, extents: extents, volume: Volume{
		ID:      ID{VG: g.UUID, LV: lvName(spec.Name)},
		Name:    spec.Name,
		Claim:   spec.Claim,
		Cluster: cluster,
		Group:   g.Name,
		Class:   spec.Class,
		State:   StateCreating,
		Size:    g.bytes(extents),
		Source:  spec.Source,
		Block:   spec.Block,
	}}
	c.volume.Class.Group = g.Name
	if extents > largest(g, spec.Class) {
		return nil, noRoom(g, spec.Class)
	}
	switch legs := spec.Class.legs(); {
	case spec.Class.Layout == LayoutThin:
		var p pool
		if p, err = poolOf(g, spec.Class); err == nil {
			c.pool, err = p.growth(extents, 0, spec.Class, cluster)
		}
	case legs == 0:
		c.place(func(g Group) []peRange { return linearRanges(g, extents) })
	default:
		c.place(func(g Group) []peRange { return legRanges(g, legs, legExtents(g, spec.Class, extents)) })
	}
	return c, err
}

// place picks the extents. Those of a raw block volume are zero already, if that can be had in few pieces; else it is
// zeroed before it is answered, as far as need be.
func (c *carving) place(pick func(Group) []peRange) {
	c.ranges = pick(c.group)
	if !c.volume.Block || len(unzeroedIn(c.group, c.ranges)) == 0 {
		return
	}
	if ranges := pick(onlyZeroed(c.group)); ranges != nil && len(ranges) <= len(holes(c.group)) {
		c.ranges = ranges
		return
	}
	c.volume.State = StateZeroing
}

// noRoom says how much there is, and what it is bounded by.
func noRoom(g Group, class Class) error {
	most := g.bytes(largest(g, class))
	switch legs := class.legs(); {
	case class.Layout == LayoutThin:
		p, err := poolOf(g, class)
		if err != nil {
			return err
		}
		return p.refusal(class, 0)
	case legs == 0:
		return Errorf(KindInsufficientCapacity, "volume group %s can give at most %s in one volume", g.Name, most)
	default:
		return Errorf(KindInsufficientCapacity, "volume group %s can give at most %s in one volume of the layout %s: its longest free run on each of %d disks is %s", g.Name, most, class.Layout, legs, g.bytes(legRun(g, legs)))
	}
}

// carveCopy plans a volume that begins as a copy of a snapshot or of another volume, which must be in the same pool.
// What this node cannot have no other can, as none has the source: that is out of range, not a lack of room.
func carveCopy(s State, cluster string, groups []Group, spec Spec) (*carving, error) {
	g, source, err := findSource(s, cluster, spec.Source)
	if err != nil {
		return nil, Errorf(KindOf(err), "volume %q cannot be made: %w", spec.Name, err)
	}
	size := g.bytes(source.Extents)
	switch {
	case !slices.ContainsFunc(groups, func(c Group) bool { return c.UUID == g.UUID }):
		return nil, Errorf(KindInvalid, "volume %q cannot be made: its source %s/%s is not in the volume group %q that is asked for", spec.Name, g.Name, source.Name, spec.Class.Group)
	case source.Type != string(LayoutThin):
		return nil, Errorf(KindInvalid, "volume %q cannot be made: its source %s/%s is not thin (its class has another layout than thin), and cannot be copied", spec.Name, g.Name, source.Name)
	case source.Pool != spec.Class.Pool:
		return nil, Errorf(KindInvalid, "volume %q cannot be made: its source is in the thin pool %s/%s, and its class asks for the pool %s", spec.Name, g.Name, source.Pool, spec.Class.Pool)
	case spec.Required > 0 && spec.Required < size:
		return nil, Errorf(KindOutOfRange, "volume %q cannot be made: the %s that are asked for are less than the %s of its source %s/%s", spec.Name, spec.Required, size, g.Name, source.Name)
	}
	spec.Required = max(spec.Required, size)
	c, err := carveIn(s, cluster, g, spec)
	switch {
	case KindOf(err) == KindInsufficientCapacity:
		return nil, Errorf(hereOnly(err), "volume %q with %s cannot be made from its source until there is room beside it: %w", spec.Name, spec.Required, err)
	case err != nil:
		return nil, Errorf(KindOf(err), "volume %q with %s cannot be made from its source: %w", spec.Name, spec.Required, err)
	}
	c.source = &source
	return c, nil
}

// hereOnly is the kind of an error where no other node can help with a lack of room.
func hereOnly(err error) Kind {
	if kind := KindOf(err); kind != KindInsufficientCapacity {
		return kind
	}
	return KindOutOfRange
}

// findSource finds the ready snapshot or volume of this cluster that a copy begins from. KindInsufficientCapacity: it is on another node.
func findSource(s State, cluster string, id ID) (Group, LV, error) {
	i := slices.IndexFunc(s.Groups, func(g Group) bool { return g.UUID == id.VG })
	if i < 0 {
		return Group{}, LV{}, Errorf(KindInsufficientCapacity, "its source %s is not on this node", id)
	}
	g := s.Groups[i]
	lv, err := g.locate(id, "source")
	if err != nil {
		return g, lv, err
	}
	state, maker := VolumeState(""), ""
	if v, ours, err := volumeOf(g, lv); err != nil {
		return g, lv, err
	} else if ours {
		state, maker = v.State, v.Cluster
	} else if sn, ours, err := snapshotOf(g, lv); err != nil {
		return g, lv, err
	} else if ours {
		state, maker = sn.State, sn.Cluster
	}
	switch {
	case state == "" || maker != cluster:
		return g, lv, Errorf(KindNotFound, "its source %s/%s is not a volume or snapshot of this cluster", g.Name, lv.Name)
	case state == StateCreating:
		return g, lv, Errorf(KindBusy, "its source %s/%s is not ready yet: ask again", g.Name, lv.Name)
	case state == StateDeleting:
		return g, lv, Errorf(KindNotFound, "its source %s/%s was deleted", g.Name, lv.Name)
	}
	return g, lv, nil
}
