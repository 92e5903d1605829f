package alloc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// Extension is a planned expansion of a volume.
type Extension struct {
	Volume   lvm.Volume // after the expansion
	Group    lvm.Group
	Lv       string        // the LV's name
	Extents  lvm.Extents   // after the expansion; 0: no change
	Ranges   []ExtentRange // additional extents; thin: none
	Pool     *PoolGrowth   // thin: the pool's change before the expansion
	Unzeroed RunsByPV      // raw block volume, not encrypted: the additional extents to zero before
	// OnKnownZeroes: the user reads the additional extents at once, and they count as zero.
	OnKnownZeroes bool
}

// PlanExtend plans the expansion of a ready volume to the required size and at most the limit (0: no limit). KindOutOfRange:
// that is impossible; the error names the possible size.
func PlanExtend(s lvm.State, v lvm.Volume, r ExtendRequest) (Extension, error) {
	required, limit := r.Required, r.Limit
	g, lv, _, err := s.FindVolume(v.ID)
	if err != nil {
		return Extension{}, err
	}
	refuse := func(err error) (Extension, error) {
		from, to := apart(v.Size, required)
		return Extension{}, lvm.Errorf(hereOnly(err), "cannot expand volume %s/%s from %s to %s: %w", g.Name, lv.Name, from, to, err)
	}
	row := v.Class.StripeExtents()
	switch {
	case required < 0 || limit < 0:
		return refuse(lvm.Errorf(lvm.KindOutOfRange, "a size cannot be negative (required %d bytes, limit %d bytes)", required, limit))
	case limit > 0 && required > limit:
		return refuse(lvm.Errorf(lvm.KindOutOfRange, "the required %d bytes are more than the limit of %d bytes", required, limit))
	case limit > 0 && limit < v.Size:
		return refuse(lvm.Errorf(lvm.KindOutOfRange, "it is larger than the limit of %d bytes already, and volumes never shrink", limit))
	case required <= v.Size:
		return Extension{Volume: v}, nil
	case v.Access.ReadOnly():
		return refuse(lvm.Errorf(lvm.KindOutOfRange, "it is a read-only copy, and nothing could use more: clone it, and expand the clone"))
	}
	extents := lvm.RoundUpToStripes(g, v.Class.DeviceSize(required), row)
	if limit > 0 && extents > lvm.Extents(v.Class.MaxDeviceSize(limit)/g.ExtentSize) {
		return refuse(lvm.LimitError(g, row, extents, required, limit))
	}
	x, err := planGrowth(s, g, lv, v, extents, (v.Block || r.Block) && v.Class.Encryption == lvm.EncryptionNone)
	if err != nil {
		return refuse(err)
	}
	v.Size = v.Class.DataSize(g.Bytes(extents))
	x.Volume = v
	return x, nil
}

// apart formats two sizes so that they differ: in bytes, if rounding hides the difference.
func apart(a, b lvm.Bytes) (string, string) {
	x, y := a.String(), b.String()
	if alike := max(a, b)-min(a, b) < max(a, b)/10; a != b && alike && strings.Contains(x+y, ".") {
		return fmt.Sprintf("%d bytes", int64(a)), fmt.Sprintf("%d bytes", int64(b))
	}
	return x, y
}

// planGrowth plans the expansion to so many extents, more than the volume has.
func planGrowth(s lvm.State, g lvm.Group, lv lvm.LV, v lvm.Volume, extents lvm.Extents, block bool) (x Extension, err error) {
	if err := growable(s, g, lv, v); err != nil {
		return x, err
	}
	x = Extension{Group: g, Lv: lv.Name, Extents: extents}
	switch {
	case extents > maxVolume(g):
		return x, lvm.Errorf(lvm.KindOutOfRange, "LVM's volumes have at most %d extents", maxExtents)
	case v.Class.Layout == lvm.LayoutThin:
		x.Pool, err = extendThin(g, lv, v, extents)
	default:
		x.Ranges, err = extendRanges(g, lv, v, extents)
	}
	if err != nil {
		return x, err
	}
	if block && len(UnzeroedIn(g, x.Ranges)) > 0 {
		if zeroed, err := extendRanges(onlyZeroed(g), lv, v, extents); err == nil && len(zeroed) <= len(FreeExtents(g)) {
			x.Ranges = zeroed
		}
		x.Unzeroed = UnzeroedIn(g, x.Ranges)
	}
	x.OnKnownZeroes = block && len(x.Ranges) > 0 && len(x.Unzeroed) == 0
	return x, nil
}

// extendRanges picks additional extents for a volume that is not thin.
func extendRanges(g lvm.Group, lv lvm.LV, v lvm.Volume, extents lvm.Extents) (ranges []ExtentRange, err error) {
	switch {
	case v.Class.IsRAID():
		ranges, err = extendRAID(g, lv, v, extents)
	case v.Class.Layout == lvm.LayoutStriped:
		space := spaceOf(g, lv)
		if ranges = legRanges(space, v.Class.Stripes, (extents-lv.Extents)/v.Class.StripeExtents()); ranges == nil {
			run := legRun(space, v.Class.Stripes)
			err = lvm.Errorf(lvm.KindInsufficientCapacity, "volume group %s has capacity for at most %s: the largest contiguous free extent range on each of %d disks is %s%s", g.Name, v.Class.DataSize(g.Bytes(lv.Extents+run*v.Class.StripeExtents())), v.Class.Stripes, g.Bytes(run), mixedBlocks(g))
		}
	default:
		space := spaceOf(g, lv)
		if ranges = extendLinear(space, lv, extents-lv.Extents); ranges == nil {
			err = lvm.Errorf(lvm.KindInsufficientCapacity, "volume group %s has capacity for at most %s%s", g.Name, v.Class.DataSize(g.Bytes(lv.Extents+space.FreeExtents())), mixedBlocks(g))
		}
	}
	return ranges, err
}

// growable checks that the volume can be extended, and that its layout still is its class's: an admin may have converted it.
func growable(s lvm.State, g lvm.Group, lv lvm.LV, v lvm.Volume) error {
	if err := lvm.CheckWritable(s, g); err != nil { // independent of the requested size
		if lvm.CheckNoDuplicatePV(g) != nil || slices.ContainsFunc(g.PVs, func(pv lvm.PV) bool { return pv.Missing || pv.Unresponsive }) {
			return lvm.Errorf(lvm.KindBusy, "%w; nodelvm retries the expansion", err)
		}
		return lvm.Errorf(lvm.KindConflict, "%w; nodelvm retries the expansion", err)
	}
	need := MetadataNeed(g, v.Class) - mdaPerVolume
	switch {
	case g.MDAFree < need+MdaReserve:
		return MetadataAreaFull(g)
	case len(lv.UsedBy) > 0:
		return lvm.Errorf(lvm.KindInUse, "%s is built on it: remove that first", strings.Join(lv.UsedBy, ", "))
	case lv.Pending:
		return lvm.Errorf(lvm.KindBusy, "its creation is not complete yet")
	case IsMoving(g, lv):
		return ErrMoving
	}
	for _, seg := range lv.Segments {
		legs := v.Class.Legs()
		if !strings.HasPrefix(seg.Type, string(v.Class.Layout)) || legs > 0 && len(seg.Areas) != legs || seg.StripeSize != v.Class.StripeSize {
			return lvm.Errorf(lvm.KindOutOfRange, "the driver created it as %s, and an admin converted it since: extend it on the node (lvextend -L+SIZE %s/%s)", v.Class.Description(), g.Name, lv.Name)
		}
	}
	return nil
}

// ErrMoving is the error for a volume with extents that pvmove moves: LVM does not change it.
var ErrMoving = lvm.Errorf(lvm.KindBusy, "pvmove moves extents of it: retry when that has ended, or abort it with pvmove --abort")

// IsMoving reports whether pvmove moves extents of a volume or its pool.
func IsMoving(g lvm.Group, lv lvm.LV) bool {
	return slices.ContainsFunc(lvm.ComponentsAndPool(g, lv), func(part lvm.LV) bool { return part.Hidden && strings.HasPrefix(part.Name, "pvmove") })
}

// extendLinear picks extents for a linear volume. It prefers those after the last one, so that the volume stays contiguous.
func extendLinear(g lvm.Group, lv lvm.LV, more lvm.Extents) []ExtentRange {
	if len(lv.Segments) == 0 || more > g.FreeExtents() {
		return LinearRanges(g, more)
	}
	last := lv.Segments[len(lv.Segments)-1]
	end := last.Areas[0].Start + last.Extents
	var ranges []ExtentRange
	for _, pv := range g.PVs {
		i := slices.IndexFunc(pv.Free, func(r lvm.Run) bool { return r.Start == end })
		if pv.UUID == last.Areas[0].PV && i >= 0 && pv.IsAllocatable() {
			ranges = []ExtentRange{FreeExtent{pv.Device, pv.Free[i]}.Head(min(more, pv.Free[i].Count))}
			more -= min(more, pv.Free[i].Count)
		}
	}
	if more == 0 {
		return ranges
	}
	rest := g.Clone()
	UseRanges(&rest, ranges)
	return append(ranges, LinearRanges(rest, more)...)
}

// extendThin plans more provisioned size; the pool allocates blocks on the first write.
func extendThin(g lvm.Group, lv lvm.LV, v lvm.Volume, extents lvm.Extents) (*PoolGrowth, error) {
	p, err := PoolOf(g, v.Class)
	if err != nil {
		return nil, err
	}
	return p.Growth(extents, lv.Extents, v.Class, v.Cluster)
}

// extendRAID picks one range on each leg's disk, which preserves the redundancy.
func extendRAID(g lvm.Group, lv lvm.LV, v lvm.Volume, extents lvm.Extents) ([]ExtentRange, error) {
	disks, err := legDisks(g, lv)
	if err != nil {
		return nil, err
	}
	row, region := v.Class.StripeExtents(), lv.Segments[0].RegionSize
	if most := region << regionBits; g.Bytes(extents) > most {
		return nil, lvm.Errorf(lvm.KindOutOfRange, "a RAID with regions of %s can have at most %s", region, v.Class.DataSize(most))
	}
	more := func(extents lvm.Extents) lvm.Extents {
		return (extents-lv.Extents)/row + RAIDMetadata(g, extents/row, region) - RAIDMetadata(g, lv.Extents/row, region)
	}
	run := maxExtents
	var ranges []ExtentRange
	for _, pv := range disks {
		free := FreeExtents(lvm.Group{PVs: []lvm.PV{pv}})
		if len(free) == 0 {
			return nil, lvm.Errorf(lvm.KindInsufficientCapacity, "%s, which a leg of it lies on, has no free extents", pv.Device)
		}
		run = min(run, free[0].Count)
		ranges = append(ranges, free[smallest(free, more(extents))].Head(more(extents)))
	}
	if more(extents) > run {
		most := lv.Extents + run*row
		for most > lv.Extents && more(most) > run {
			most -= row
		}
		return nil, lvm.Errorf(lvm.KindInsufficientCapacity, "it can have at most %s: the largest contiguous free extent range on the disks of its legs is %s", v.Class.DataSize(g.Bytes(most)), g.Bytes(run))
	}
	return ranges, nil
}

// legDisks returns the disk of each leg of a RAID volume, in the order of the legs.
func legDisks(g lvm.Group, lv lvm.LV) ([]lvm.PV, error) {
	var disks []lvm.PV
	for _, area := range lv.Segments[0].Areas {
		i := slices.IndexFunc(g.LVs, func(image lvm.LV) bool { return image.Name == area.LV })
		if i < 0 {
			return nil, lvm.Errorf(lvm.KindInternal, "its leg %q does not exist", area.LV)
		}
		uuid := ""
		for _, seg := range g.LVs[i].Segments {
			for _, part := range seg.Areas {
				if uuid != "" && part.PV != uuid {
					return nil, lvm.Errorf(lvm.KindOutOfRange, "its leg %s is on several disks: extend the volume on the node (lvextend -L+SIZE %s/%s)", area.LV, g.Name, lv.Name)
				}
				uuid = part.PV
			}
		}
		j := slices.IndexFunc(g.PVs, func(pv lvm.PV) bool { return pv.UUID == uuid })
		if j < 0 || slices.ContainsFunc(disks, func(pv lvm.PV) bool { return pv.UUID == uuid }) {
			return nil, lvm.Errorf(lvm.KindOutOfRange, "its leg %s shares its disk with another leg, or has none: replace the leg (lvconvert --replace), or extend the volume on the node (lvextend -L+SIZE %s/%s)", area.LV, g.Name, lv.Name)
		}
		disks = append(disks, g.PVs[j])
	}
	return disks, nil
}

// ExtendRequest is an Extend request; in-flight operations compare it.
type ExtendRequest struct {
	Id              lvm.ID
	Required, Limit lvm.Bytes
	Block           bool
}
