package alloc

import (
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// Allocation is a planned volume.
type Allocation struct {
	Group   lvm.Group  // as read, without the free extents that the plan gives to earlier volumes
	Volume  lvm.Volume // state creating, without the UUID that LVM assigns
	Extents lvm.Extents
	Ranges  []ExtentRange // all extents of the volume; striped and RAID: one range for each leg; thin: none
	Pool    *PoolGrowth   // thin: the pool's change before the volume
	Source  *lvm.LV       // thin: the LV to restore or clone
}

// allocate chooses the volume group and the extents. Of several volume groups with a tag it chooses the one that has the fewest
// free extents left afterwards. Large free ranges stay for large volumes, so a published Largest stays true for longer.
func allocate(s lvm.State, cluster string, groups []lvm.Group, spec lvm.Spec) (*Allocation, error) {
	if spec.Source != (lvm.ID{}) {
		return allocateCopy(s, cluster, groups, spec)
	}
	var best *Allocation
	var left lvm.Bytes
	var refusals []error
	for _, g := range groups {
		c, err := allocateIn(s, cluster, g, spec)
		if err != nil {
			refusals = append(refusals, err)
			continue
		}
		if l := g.Bytes(Largest(g, spec.Class) - c.Extents); best == nil || l < left {
			best, left = c, l
		}
	}
	if best != nil {
		return best, nil
	}
	return nil, refuse(spec, refusals)
}

// refuse joins the groups' refusals. The request is out of range only if no volume group could ever provide the size.
func refuse(spec lvm.Spec, refusals []error) error {
	kind := lvm.KindOutOfRange
	words := make([]string, 0, len(refusals))
	for _, err := range refusals {
		if lvm.KindOf(err) != lvm.KindOutOfRange {
			kind = lvm.KindInsufficientCapacity
		}
		words = append(words, err.Error())
	}
	if len(refusals) == 0 {
		return noGroup(spec.Class)
	}
	if kind == lvm.KindOutOfRange {
		return lvm.Errorf(kind, "volume %q: %s", spec.Name, strings.Join(words, "; "))
	}
	return lvm.Errorf(kind, "insufficient capacity for volume %q with %s: %s", spec.Name, spec.Size(), strings.Join(words, "; "))
}

func allocateIn(s lvm.State, cluster string, g lvm.Group, spec lvm.Spec) (*Allocation, error) {
	if err := CheckAllocatable(s, g, spec.Class); err != nil {
		return nil, err
	}
	extents, err := spec.Extents(g)
	if err != nil {
		return nil, err
	}
	c := &Allocation{Group: g, Extents: extents, Volume: lvm.Volume{
		ID:      lvm.ID{VG: g.UUID, LV: lvm.LVName(spec.Name)},
		Name:    spec.Name,
		Claim:   spec.Claim,
		Cluster: cluster,
		Group:   g.Name,
		Class:   spec.Class,
		State:   lvm.StateCreating,
		Size:    spec.Class.DataSize(g.Bytes(extents)),
		Source:  spec.Source,
		Block:   spec.Block,
		Access:  spec.Access,
		Limits:  spec.Limits,
	}}
	c.Volume.Class.Group = string(g.Name)
	provisions := extents
	if spec.Access != lvm.AccessWritable {
		provisions = copyExtents(g, spec, extents)
	}
	if provisions > Largest(g, spec.Class) {
		return nil, noRoom(g, spec.Class)
	}
	switch legs := spec.Class.Legs(); {
	case spec.Class.Layout == lvm.LayoutThin:
		var p Pool
		if p, err = PoolOf(g, spec.Class); err == nil {
			c.Pool, err = p.Growth(provisions, 0, spec.Class, cluster)
		}
	case legs == 0:
		c.pickExtents(spaceFor(g, spec.Class, extents), func(g lvm.Group) []ExtentRange { return LinearRanges(g, extents) })
	default:
		c.pickExtents(spaceFor(g, spec.Class, extents), func(g lvm.Group) []ExtentRange { return legRanges(g, legs, LegExtents(g, spec.Class, extents)) })
	}
	return c, err
}

// pickExtents picks the extents. A raw block volume gets zeroed extents if few ranges provide them; else the driver zeroes the
// others before it returns the volume.
func (c *Allocation) pickExtents(space lvm.Group, pick func(lvm.Group) []ExtentRange) {
	c.Ranges = pick(space)
	if !c.Volume.Block || len(UnzeroedIn(c.Group, c.Ranges)) == 0 {
		return
	}
	if ranges := pick(onlyZeroed(space)); ranges != nil && len(ranges) <= len(FreeExtents(space)) {
		c.Ranges = ranges
		return
	}
	c.Volume.State = lvm.StateZeroing
}

// noRoom returns an error with the size of the largest possible volume, and what limits it.
func noRoom(g lvm.Group, class lvm.Class) error {
	most := class.DataSize(g.Bytes(Largest(g, class)))
	switch legs := class.Legs(); {
	case class.Layout == lvm.LayoutThin:
		p, err := PoolOf(g, class)
		if err != nil {
			return err
		}
		return p.refusal(class, 0)
	case legs == 0:
		return lvm.Errorf(lvm.KindInsufficientCapacity, "volume group %s has capacity for a volume of at most %s%s", g.Name, most, mixedBlocks(g))
	default:
		run := lvm.Extents(0)
		for _, space := range spaces(g) {
			run = max(run, legRun(space, legs))
		}
		return lvm.Errorf(lvm.KindInsufficientCapacity, "volume group %s has capacity for a volume of at most %s with the layout %s: the largest contiguous free extent range on each of %d disks is %s%s", g.Name, most, class.Layout, legs, g.Bytes(run), mixedBlocks(g))
	}
}

// allocateCopy plans a volume that is restored or cloned. Its source must be in the same pool. Another node cannot help,
// because none has the source: insufficient capacity becomes out of range.
func allocateCopy(s lvm.State, cluster string, groups []lvm.Group, spec lvm.Spec) (*Allocation, error) {
	g, source, encryption, err := findSource(s, cluster, spec.Source)
	if err != nil {
		return nil, lvm.Errorf(lvm.KindOf(err), "cannot create volume %q: %w", spec.Name, err)
	}
	size := spec.Class.DataSize(g.Bytes(source.Extents))
	switch {
	case source.Type != string(lvm.LayoutThin):
		return nil, lvm.Errorf(lvm.KindInvalid, "cannot create volume %q: its source %s/%s has the layout %s, and %w", spec.Name, g.Name, source.Name, source.Type, lvm.ErrThick)
	case !slices.ContainsFunc(groups, func(c lvm.Group) bool { return c.UUID == g.UUID }):
		return nil, lvm.Errorf(lvm.KindInvalid, "cannot create volume %q: its source %s/%s is not in the requested volume group %q", spec.Name, g.Name, source.Name, spec.Class.Group)
	case source.Pool != spec.Class.Pool:
		return nil, lvm.Errorf(lvm.KindInvalid, "cannot create volume %q: its source is in the thin pool %s/%s, but its class demands the pool %s", spec.Name, g.Name, source.Pool, spec.Class.Pool)
	case encryption != spec.Class.Encryption:
		return nil, lvm.Errorf(lvm.KindInvalid, "cannot create volume %q: its source %s/%s is %s, but its class asks for a volume that is %s: a copy keeps the encryption of its source, so use a class with the same encryption",
			spec.Name, g.Name, source.Name, encryption.Description(), spec.Class.Encryption.Description())
	case spec.Required > 0 && spec.Required < size:
		return nil, lvm.Errorf(lvm.KindOutOfRange, "cannot create volume %q: the requested %s are less than the %s of its source %s/%s", spec.Name, spec.Required, size, g.Name, source.Name)
	case spec.Access != lvm.AccessWritable && spec.Required > size:
		return nil, lvm.Errorf(lvm.KindOutOfRange, "cannot create volume %q: a read-only copy has the size of its source %s/%s, and nothing could use more: request %d bytes, not %d", spec.Name, g.Name, source.Name, size, spec.Required)
	}
	spec.Required = max(spec.Required, size)
	c, err := allocateIn(s, cluster, g, spec)
	switch {
	case lvm.KindOf(err) == lvm.KindInsufficientCapacity:
		return nil, lvm.Errorf(hereOnly(err), "cannot create volume %q with %s from its source until the thin pool has capacity: %w", spec.Name, spec.Required, err)
	case err != nil:
		return nil, lvm.Errorf(lvm.KindOf(err), "cannot create volume %q with %s from its source: %w", spec.Name, spec.Required, err)
	}
	c.Source = &source
	return c, nil
}

// hereOnly returns the kind of an error if no other node can help.
func hereOnly(err error) lvm.Kind {
	if kind := lvm.KindOf(err); kind != lvm.KindInsufficientCapacity {
		return kind
	}
	return lvm.KindOutOfRange
}

// findSource returns the ready snapshot or volume of this cluster to restore or clone. KindInsufficientCapacity: not on this
// node.
func findSource(s lvm.State, cluster string, id lvm.ID) (g lvm.Group, lv lvm.LV, encryption lvm.Encryption, err error) {
	i := slices.IndexFunc(s.Groups, func(g lvm.Group) bool { return g.UUID == id.VG })
	if i < 0 {
		return g, lv, "", lvm.Errorf(lvm.KindInsufficientCapacity, "its source %s is not on this node", id)
	}
	g = s.Groups[i]
	if lv, err = g.LocateLV(id, "source"); err != nil {
		return g, lv, "", err
	}
	if err := lv.CheckTags(); err != nil {
		return g, lv, "", err
	}
	state, maker := lvm.VolumeState(""), ""
	if v, is := lv.AsVolume(); is {
		state, maker, encryption = v.State, v.Cluster, v.Class.Encryption
	} else if sn, is := lv.AsSnapshot(); is {
		state, maker, encryption = sn.State, sn.Cluster, sn.Encryption
	}
	switch {
	case state == "" || maker != cluster:
		return g, lv, "", lvm.Errorf(lvm.KindNotFound, "its source %s/%s is not a volume or snapshot of this cluster", g.Name, lv.Name)
	case state == lvm.StateCreating:
		return g, lv, "", lvm.Errorf(lvm.KindBusy, "its source %s/%s is not ready yet; retry", g.Name, lv.Name)
	case state == lvm.StateDeleting:
		return g, lv, "", lvm.Errorf(lvm.KindNotFound, "its source %s/%s was deleted", g.Name, lv.Name)
	case state.IsMove():
		return g, lv, "", lvm.Errorf(lvm.KindBusy, "its source %s/%s is moving to another node; retry when it has arrived", g.Name, lv.Name)
	}
	return g, lv, encryption, nil
}
