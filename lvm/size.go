package lvm

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Bytes is a size in bytes.
type Bytes int64

// units are the units of sizes, the largest first.
var units = []struct {
	size Bytes
	name string
}{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}, {1, "B"}}

// Share formats a part of a whole in one unit: "3.1 of 3.3 GiB". Both have at most one decimal, rounded down.
func Share(part, whole Bytes) string {
	for _, unit := range units {
		if whole < unit.size {
			continue
		}
		in := func(b Bytes) string {
			return strings.TrimSuffix(fmt.Sprintf("%d.%d", b/unit.size, b%unit.size*10/unit.size), ".0")
		}
		if part > 0 && in(part) == "0" {
			break
		}
		return in(part) + " of " + in(whole) + " " + unit.name
	}
	return part.String() + " of " + whole.String()
}

// String formats a size for operators: exact, in the largest unit in which it is a whole number of at most four digits; else
// with one decimal, rounded down.
func (b Bytes) String() string {
	for _, unit := range units {
		if b%unit.size == 0 && b != 0 && b/unit.size < 10000 {
			return fmt.Sprintf("%d %s", b/unit.size, unit.name)
		}
	}
	for _, unit := range units {
		if b >= unit.size {
			return fmt.Sprintf("%d.%d %s", b/unit.size, b%unit.size*10/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%d B", int64(b))
}

// Units for messages and defaults.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	TiB Bytes = 1 << 40
)

// Extents counts physical extents. Their size is a property of the volume group.
type Extents int64

// DefaultSize is the size of a volume whose request has none.
const DefaultSize = 1 * GiB

const SectorSize = 512

// FreeExtents returns the number of extents that LVM can allocate. That is also the largest linear volume, which needs no
// contiguous extents.
func (g Group) FreeExtents() (n Extents) {
	for _, pv := range g.PVs {
		n += pv.AllocatableExtents()
	}
	return n
}

// AllocatableExtents returns the number of the disk's extents that LVM can allocate.
func (pv PV) AllocatableExtents() (n Extents) {
	for _, r := range pv.Free {
		n += r.Count
	}
	if !pv.IsAllocatable() {
		return 0
	}
	return n
}

// LongestRun returns the length of the disk's longest extent range that LVM can allocate.
func (pv PV) LongestRun() (n Extents) {
	for _, r := range pv.Free {
		n = max(n, r.Count)
	}
	if !pv.IsAllocatable() {
		return 0
	}
	return n
}

// IsAllocatable reports whether LVM can allocate extents of the disk.
func (pv PV) IsAllocatable() bool { return pv.Allocatable && !pv.Missing }

// FreeRunCount returns the number of free extent ranges.
func (g Group) FreeRunCount() (n Bytes) {
	for _, pv := range g.PVs {
		n += Bytes(len(pv.Free))
	}
	return n
}

// Bytes returns the size of n extents. It does not overflow for any n that the volume group's disks can have.
func (g Group) Bytes(n Extents) Bytes { return Bytes(n) * g.ExtentSize }

// ExtentsFor returns a size in extents, rounded up.
func (g Group) ExtentsFor(size Bytes) Extents { return Extents((size-1)/g.ExtentSize) + 1 }

// BlockSizes returns the logical block sizes of the present disks, ascending, each once.
func (g Group) BlockSizes() (sizes []Bytes) {
	for _, pv := range g.PVs {
		if !pv.Missing {
			sizes = append(sizes, pv.BlockSize)
		}
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// BlockSizesOf returns the logical block sizes of the present disks that an LV and its parts are on, but not those of a thin volume's
// pool, ascending, each once.
func (g Group) BlockSizesOf(lv LV) []Bytes {
	used := map[string]bool{}
	for _, part := range Components(g, lv) {
		for _, seg := range part.Segments {
			for _, area := range slices.Concat(seg.Areas, seg.Metadata) {
				used[area.PV] = true
			}
		}
	}
	return Group{PVs: slices.DeleteFunc(slices.Clone(g.PVs), func(pv PV) bool { return !used[pv.UUID] })}.BlockSizes()
}

// Clone copies the slices that an allocation changes. The copy lacks Unresponsive, Skipped, Devices and PVs.
func (s State) Clone() State {
	groups := slices.Clone(s.Groups)
	for i := range groups {
		groups[i] = groups[i].Clone()
	}
	return State{Groups: groups, UnreadDevices: s.UnreadDevices, MissingTargets: s.MissingTargets}
}

func (g Group) Clone() Group {
	g.LVs = slices.Clone(g.LVs)
	g.PVs = slices.Clone(g.PVs)
	for i := range g.PVs {
		g.PVs[i].Free = slices.Clone(g.PVs[i].Free)
	}
	return g
}

// End returns the first extent after the run.
func (r Run) End() Extents { return r.Start + r.Count }

// Size returns the volume's minimum size: if the request has none, the default, but at most the limit.
func (spec Spec) Size() Bytes {
	switch {
	case spec.Required > 0:
		return spec.Required
	case spec.Limit > 0:
		return min(DefaultSize, spec.Limit)
	default:
		return DefaultSize
	}
}

// Extents returns the size in extents, rounded up to whole stripes. Without a required size, it rounds down if only the limit
// prevents rounding up. KindOutOfRange: the rounded size exceeds the limit.
func (spec Spec) Extents(g Group) (Extents, error) {
	row := spec.Class.StripeExtents()
	n := RoundUpToStripes(g, spec.Class.DeviceSize(spec.Size()), row)
	most := Extents(spec.Class.MaxDeviceSize(spec.Limit) / g.ExtentSize)
	if spec.Limit == 0 || n <= most {
		return n, nil
	}
	if fit := most / row * row; spec.Required == 0 && spec.Class.DataSize(g.Bytes(fit)) > 0 {
		return fit, nil
	}
	return 0, LimitError(g, row, n, spec.Size(), spec.Limit)
}

// RoundUpToStripes returns a size in extents, rounded up to whole stripes. It does not overflow for any size.
func RoundUpToStripes(g Group, size Bytes, row Extents) Extents {
	return (g.ExtentsFor(size)-1)/row*row + row
}

func LimitError(g Group, row, n Extents, size, limit Bytes) error {
	return Errorf(KindOutOfRange, "volume group %s allocates whole extents of %s, here %d at a time: %d bytes need %d of them, which exceeds the limit of %d bytes", g.Name, g.ExtentSize, row, size, n, limit)
}

// LUKSHeaderSize is the offset of the data on an encrypted logical volume. It must never change: the sizes of existing volumes
// depend on it.
const LUKSHeaderSize = 16 * MiB

// LUKSMinDataSize is the least size of an encrypted volume: it has space for the places of superblocks and, between them, a mark of
// the driver.
const LUKSMinDataSize = 4 * MiB

// DeviceSize returns the least size of the logical volume for a volume of a size: with the header if the class is encrypted. It
// does not overflow for any size.
func (class Class) DeviceSize(volume Bytes) Bytes {
	if class.Encryption == EncryptionNone {
		return volume
	}
	return min(max(volume, LUKSMinDataSize), math.MaxInt64-LUKSHeaderSize) + LUKSHeaderSize
}

// DataSize returns the size of a volume of the class on a logical volume of a size; 0 if that is too small for encryption.
func (class Class) DataSize(device Bytes) Bytes {
	switch {
	case class.Encryption == EncryptionNone:
		return device
	case device < LUKSHeaderSize+LUKSMinDataSize:
		return 0
	}
	return device - LUKSHeaderSize
}

// MaxDeviceSize returns the largest size of the logical volume for a volume with a limit.
func (class Class) MaxDeviceSize(limit Bytes) Bytes {
	if class.Encryption == EncryptionNone {
		return limit
	}
	return min(limit, math.MaxInt64-LUKSHeaderSize) + LUKSHeaderSize
}

// DeviceSize returns the size of the volume's logical volume.
func (v Volume) DeviceSize() Bytes { return v.Class.DeviceSize(v.Size) }
