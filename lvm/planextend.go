package lvm

import (
	"fmt"
	"slices"
	"strings"
)

// extension is what makes a volume larger.
type extension struct {
	volume   Volume // as it will be
	group    Group
	lv       string      // its name in the group
	extents  Extents     // that it will have; 0: it has that size already
	ranges   []peRange   // where it grows; thin: none
	pool     *poolGrowth // thin: what is done to its pool before
	unzeroed runsByPV    // of the extents that a raw block volume gets, those that must be zeroed before
}

// planExtend decides how a ready volume gets what is required and at most the limit (0: no limit). KindOutOfRange: it
// cannot have that, and what it can have is said.
func planExtend(s State, v Volume, r extending) (extension, error) {
	required, limit := r.required, r.limit
	g, lv, _, err := s.find(v.ID)
	if err != nil {
		return extension{}, err
	}
	refuse := func(err error) (extension, error) {
		from, to := apart(v.Size, required)
		return extension{}, Errorf(hereOnly(err), "volume %s/%s cannot grow from %s to %s: %w", g.Name, lv.Name, from, to, err)
	}
	row := v.Class.row()
	switch {
	case required < 0 || limit < 0:
		return refuse(Errorf(KindOutOfRange, "a size cannot be negative (required %d bytes, limit %d bytes)", required, limit))
	case limit > 0 && required > limit:
		return refuse(Errorf(KindOutOfRange, "the required %d bytes are more than the limit of %d bytes", required, limit))
	case limit > 0 && limit < v.Size:
		return refuse(Errorf(KindOutOfRange, "it is larger than the limit of %d bytes already, and volumes never shrink", limit))
	case required <= v.Size:
		return extension{volume: v}, nil
	}
	extents := rowsFor(g, required, row)
	if limit > 0 && extents > Extents(limit/g.ExtentSize) {
		return refuse(pastLimit(g, row, extents, required, limit))
	}
	x, err := extendTo(s, g, lv, v, extents, v.Block || r.block)
	if err != nil {
		return refuse(err)
	}
	v.Size = g.bytes(extents)
	x.volume = v
	return x, nil
}

// apart words two sizes so that it shows which is larger: in bytes, where rounding could hide it.
func apart(a, b Bytes) (string, string) {
	x, y := a.String(), b.String()
	if alike := max(a, b)-min(a, b) < max(a, b)/10; a != b && alike && strings.Contains(x+y, ".") {
		return fmt.Sprintf("%d bytes", int64(a)), fmt.Sprintf("%d bytes", int64(b))
	}
	return x, y
}

// extendTo plans how the volume gets so many extents, which are more than it has.
func extendTo(s State, g Group, lv LV, v Volume, extents Extents, block bool) (x extension, err error) {
	if err := growable(s, g, lv, v); err != nil {
		return x, err
	}
	x = extension{group: g, lv: lv.Name, extents: extents}
	switch {
	case extents > maxVolume(g):
		return x, Errorf(KindOutOfRange, "LVM's volumes have at most %d extents", maxExtents)
	case v.Class.Layout == LayoutThin:
		x.pool, err = extendThin(g, lv, v, extents)
	default:
		x.ranges, err = extendRanges(g, lv, v, extents)
	}
	if err != nil {
		return x, err
	}
	if block && len(unzeroedIn(g, x.ranges)) > 0 {
		if zeroed, err := extendRanges(onlyZeroed(g), lv, v, extents); err == nil && len(zeroed) <= len(holes(g)) {
			x.ranges = zeroed
		}
		x.unzeroed = unzeroedIn(g, x.ranges)
	}
	return x, nil
}

// extendRanges picks what a volume that is not thin grows by.
func extendRanges(g Group, lv LV, v Volume, extents Extents) (ranges []peRange, err error) {
	switch {
	case v.Class.raid():
		ranges, err = extendRAID(g, lv, v, extents)
	case v.Class.Layout == LayoutStriped:
		if ranges = legRanges(g, v.Class.Stripes, (extents-lv.Extents)/v.Class.row()); ranges == nil {
			run := legRun(g, v.Class.Stripes)
			err = Errorf(KindInsufficientCapacity, "volume group %s can give it at most %s: the longest free run on each of %d disks is %s", g.Name, g.bytes(lv.Extents+run*v.Class.row()), v.Class.Stripes, g.bytes(run))
		}
	default:
		if ranges = extendLinear(g, lv, extents-lv.Extents); ranges == nil {
			err = Errorf(KindInsufficientCapacity, "volume group %s can give it at most %s", g.Name, g.bytes(lv.Extents+g.free()))
		}
	}
	return ranges, err
}

// growable tells whether the volume may grow at all, and still lies as its class says: an admin may have converted it.
func growable(s State, g Group, lv LV, v Volume) error {
	if err := unchangeable(s, g); err != nil { // the size that is asked for is none the worse
		if slices.ContainsFunc(g.PVs, func(pv PV) bool { return pv.Missing || pv.Silent || len(pv.Copies) > 0 }) {
			return Errorf(KindBusy, "%w; it is tried again", err)
		}
		return Errorf(KindConflict, "%w; it is tried again", err)
	}
	need := mdaNeed(g, v.Class) - mdaPerVolume
	switch {
	case g.MDAFree < need+mdaReserve:
		return areaFull(g)
	case len(lv.UsedBy) > 0:
		return Errorf(KindInUse, "%s is built on it: remove that first", strings.Join(lv.UsedBy, ", "))
	case lv.Pending:
		return Errorf(KindBusy, "it is not completely made yet")
	case isMoving(g, lv):
		return errMoving
	}
	for _, seg := range lv.Segments {
		legs := v.Class.legs()
		if !strings.HasPrefix(seg.Type, string(v.Class.Layout)) || legs > 0 && len(seg.Areas) != legs || seg.StripeSize != v.Class.StripeSize {
			return Errorf(KindOutOfRange, "it was made as %s, and somebody has converted it since: extend it by hand (lvextend)", v.Class.words())
		}
	}
	return nil
}

// errMoving: LVM changes no volume of which extents are being moved.
var errMoving = Errorf(KindBusy, "extents of it are being moved (pvmove): ask again when that has ended, or end it with pvmove --abort")

// isMoving tells whether extents of a volume, or of its pool, are being moved.
func isMoving(g Group, lv LV) bool {
	return slices.ContainsFunc(below(g, lv), func(part LV) bool { return part.Hidden && strings.HasPrefix(part.Name, "pvmove") })
}

// extendLinear picks extents for a linear volume: first those that follow its last one, so that it stays in one piece.
func extendLinear(g Group, lv LV, more Extents) []peRange {
	if len(lv.Segments) == 0 || more > g.free() {
		return linearRanges(g, more)
	}
	last := lv.Segments[len(lv.Segments)-1]
	end := last.Areas[0].Start + last.Extents
	var ranges []peRange
	for _, pv := range g.PVs {
		i := slices.IndexFunc(pv.Free, func(r Run) bool { return r.Start == end })
		if pv.UUID == last.Areas[0].PV && i >= 0 && pv.usable() {
			ranges = []peRange{hole{pv.Device, pv.Free[i]}.head(min(more, pv.Free[i].Count))}
			more -= min(more, pv.Free[i].Count)
		}
	}
	if more == 0 {
		return ranges
	}
	rest := g.clone()
	useRanges(&rest, ranges)
	return append(ranges, linearRanges(rest, more)...)
}

// extendThin promises more; the blocks come from the pool when they are written.
func extendThin(g Group, lv LV, v Volume, extents Extents) (*poolGrowth, error) {
	p, err := poolOf(g, v.Class)
	if err != nil {
		return nil, err
	}
	return p.growth(extents, lv.Extents, v.Class, v.Cluster)
}

// extendRAID picks one run on each leg's own disk: the redundancy stays what it was.
func extendRAID(g Group, lv LV, v Volume, extents Extents) ([]peRange, error) {
	disks, err := legDisks(g, lv)
	if err != nil {
		return nil, err
	}
	row, region := v.Class.row(), lv.Segments[0].RegionSize
	if most := region << regionBits; g.bytes(extents) > most {
		return nil, Errorf(KindOutOfRange, "a RAID with regions of %s can have at most %s", region, most)
	}
	more := func(extents Extents) Extents {
		return (extents-lv.Extents)/row + raidMetadata(g, extents/row, region) - raidMetadata(g, lv.Extents/row, region)
	}
	run := maxExtents
	var ranges []peRange
	for _, pv := range disks {
		free := holes(Group{PVs: []PV{pv}})
		if len(free) == 0 {
			return nil, Errorf(KindInsufficientCapacity, "%s, which a leg of it lies on, has no free extents", pv.Device)
		}
		run = min(run, free[0].Count)
		ranges = append(ranges, free[smallest(free, more(extents))].head(more(extents)))
	}
	if more(extents) > run {
		most := lv.Extents + run*row
		for most > lv.Extents && more(most) > run {
			most -= row
		}
		return nil, Errorf(KindInsufficientCapacity, "it can have at most %s: the longest free run on the disks that its legs lie on is %s", g.bytes(most), g.bytes(run))
	}
	return ranges, nil
}

// legDisks finds the disk of each leg of a RAID volume, in the order of the legs.
func legDisks(g Group, lv LV) ([]PV, error) {
	var disks []PV
	for _, area := range lv.Segments[0].Areas {
		i := slices.IndexFunc(g.LVs, func(image LV) bool { return image.Name == area.LV })
		if i < 0 {
			return nil, Errorf(KindInternal, "its leg %q is not there", area.LV)
		}
		uuid := ""
		for _, seg := range g.LVs[i].Segments {
			for _, part := range seg.Areas {
				if uuid != "" && part.PV != uuid {
					return nil, Errorf(KindOutOfRange, "its leg %s lies on several disks: extend it by hand (lvextend)", area.LV)
				}
				uuid = part.PV
			}
		}
		j := slices.IndexFunc(g.PVs, func(pv PV) bool { return pv.UUID == uuid })
		if j < 0 || slices.ContainsFunc(disks, func(pv PV) bool { return pv.UUID == uuid }) {
			return nil, Errorf(KindOutOfRange, "its leg %s has no disk of its own: replace it (lvconvert --replace), or extend the volume by hand", area.LV)
		}
		disks = append(disks, g.PVs[j])
	}
	return disks, nil
}

// extending is an Extend request, as flights compare it.
type extending struct {
	id              ID
	required, limit Bytes
	block           bool
}
