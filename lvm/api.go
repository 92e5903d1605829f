package lvm

import (
	"regexp"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/lvm/inventory"
)

// Bytes is a size in bytes.
type Bytes = inventory.Bytes

// Sizes that messages and defaults are written in.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	TiB Bytes = 1 << 40
)

// Extents counts a volume group's physical extents; their size is a property of the group.
type Extents int64

// ID names one volume in the world: the volume group's UUID and the logical volume's name. Its text form, the CSI
// volume handle, is `<vg uuid>/<lv name>`, at most 128 bytes (CSI spec, "Size Limits").
type ID struct {
	VG string // UUID in LVM's notation: 6-4-4-4-4-4-6 characters
	LV string
}

var (
	uuidPattern = regexp.MustCompile(`^[A-Za-z0-9]{6}(-[A-Za-z0-9]{4}){5}-[A-Za-z0-9]{6}$`)
	NamePattern = regexp.MustCompile(`^[A-Za-z0-9_+.][A-Za-z0-9_+.-]*$`)
)

// ParseID reads a volume handle. It fails (KindInvalid) on anything that this driver can never have handed out.
func ParseID(handle string) (ID, error) {
	vg, lv, ok := strings.Cut(handle, "/")
	if !ok || len(handle) > 128 || !uuidPattern.MatchString(vg) || !NamePattern.MatchString(lv) {
		return ID{}, Errorf(KindInvalid, "%q is not a volume handle of this driver (<volume group UUID>/<logical volume>)", handle)
	}
	return ID{VG: vg, LV: lv}, nil
}

func (id ID) String() string { return id.VG + "/" + id.LV }

// Description names what a volume begins as, for people: the handle alone tells them little.
func (id ID) Description() string {
	switch {
	case id == ID{}:
		return "an empty volume"
	case id.IsSnapshot():
		return "a copy of the snapshot " + id.LV
	}
	return "a copy of the volume " + id.LV
}

// Layout says how a volume's extents lie on the disks.
type Layout string

const (
	LayoutLinear  Layout = "linear"  // extents wherever they are free, one disk after the other
	LayoutStriped Layout = "striped" // Stripes disks in turns
	LayoutRAID1   Layout = "raid1"   // Mirrors further copies, each on a disk of its own (lvmraid(7))
	LayoutRAID5   Layout = "raid5"   // Stripes disks of data and one of parity
	LayoutRAID6   Layout = "raid6"   // Stripes disks of data and two of parity
	LayoutRAID10  Layout = "raid10"  // Stripes pairs of disks
	LayoutThin    Layout = "thin"    // blocks of a thin pool, taken when they are written; the one with snapshots (lvmthin(7))
)

// Wipe says what happens to a volume's extents before they return to the pool.
type Wipe string

const (
	WipeZero Wipe = "zero" // every byte is zeroed; the default
	WipeNone Wipe = "none" // the next volume may show the old content to its owner
)

// Class is what a StorageClass asks for: where volumes are carved and how. It is comparable. The zero value of a field
// that the layout has means the layout's default; a field that the layout does not have must be zero.
type Class struct {
	Group         string // a volume group's name, or "@tag" for any group that carries the LVM tag
	Layout        Layout
	Wipe          Wipe
	Stripes       int    // striped, raid5, raid10: 2 or more, 2 by default; raid6: 3 or more, 3 by default
	StripeSize    Bytes  // striped, raid5, raid6, raid10: a power of two from 4 KiB to the extent size; 64 KiB by default
	Mirrors       int    // raid1: 1 to 9, 1 by default; raid10: 1
	Pool          string // thin: the pool's name, DefaultPool by default
	Overprovision int    // thin: how much of the pool's size may be promised, in percent; 100 to 10000, 100 by default
}

// DefaultPool is the thin pool of a class that names none.
const DefaultPool = "nodelvm-thin"

// Spec is one wanted volume. It is comparable.
type Spec struct {
	Name     string // the CO's name for it, 1 - 128 bytes of any UTF-8: the key of idempotency
	Class    Class
	Required Bytes  // at least this much; 0 means "the default": DefaultSize, or the source's size
	Limit    Bytes  // at most this much; 0 means no limit
	Claim    string // "namespace/name" of the claim, for people who read LVM's tags; may be empty
	Source   ID     // thin: the snapshot or volume that it begins as a copy of; zero for an empty volume
	Block    bool   // its user can see bytes that nobody wrote, as of a raw block volume: none may be what its extents held before
}

// DefaultSize is given where a request names no size.
const DefaultSize = 1 * GiB

// VolumeState is how far a volume's life has come; it stands in the volume's state tag.
type VolumeState string

const (
	StateCreating VolumeState = "creating" // committed, perhaps not activated or wiped: finished or removed by a retry or the next start
	StateZeroing  VolumeState = "zeroing"  // committed, never answered: extents whose content is not known are being zeroed; removed by a retry or the next start
	StateReady    VolumeState = "ready"
	StateDeleting VolumeState = "deleting" // deleted for its user; its extents are being wiped
)

// Volume is one logical volume of ours as it stands on the disks.
type Volume struct {
	ID      ID
	UUID    string // the logical volume's own UUID: tells it from one made later under the same name
	Name    string // Spec.Name
	Claim   string // Spec.Claim
	Cluster string // UID of the cluster that made it
	Group   string // the volume group's name
	Class   Class  // Class.Group is the group's name
	State   VolumeState
	Size    Bytes
	Source  ID   // Spec.Source; it may be gone by now
	Block   bool // Spec.Block
}

// SnapshotSpec is one wanted snapshot of a thin volume. It is comparable.
type SnapshotSpec struct {
	Name   string // the CO's name for it, as in Spec
	Source ID     // the volume
}

// Snapshot is a thin volume's content at one moment, read-only and never mounted: volumes are made from it.
type Snapshot struct {
	ID      ID
	UUID    string
	Name    string // SnapshotSpec.Name
	Cluster string // UID of the cluster that made it
	Group   string
	Pool    string // the thin pool that it is in
	Source  ID     // SnapshotSpec.Source; it may be gone by now
	State   VolumeState
	Size    Bytes     // of the volume when it was taken
	Created time.Time // whole seconds
}

// Capacity answers what a Class can still get on this node.
type Capacity struct {
	Available Bytes // sum over the groups behind the class
	Largest   Bytes // the largest single volume that Create will really accept
}

const SectorSize = 512
