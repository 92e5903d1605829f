package lvm

import (
	"time"
)

// VGName is the name of a volume group. Two groups on one node can have the same name, and an admin can change it.
type VGName string

// VGUUID is the UUID of a volume group in LVM's notation: 6-4-4-4-4-4-6 characters.
type VGUUID string

// Layout is how LVM maps a volume's extents to physical volumes.
type Layout string

const (
	LayoutLinear  Layout = "linear"  // any free extents
	LayoutStriped Layout = "striped" // over Stripes physical volumes
	LayoutRAID1   Layout = "raid1"   // Mirrors additional copies (lvmraid(7))
	LayoutRAID5   Layout = "raid5"   // Stripes data legs, one parity leg
	LayoutRAID6   Layout = "raid6"   // Stripes data legs, two parity legs
	LayoutRAID10  Layout = "raid10"  // Stripes mirrored pairs
	LayoutThin    Layout = "thin"    // blocks of a thin pool; the only layout with snapshots (lvmthin(7))
)

// Wipe is what the driver does to a deleted volume's extents before it frees them.
type Wipe string

const (
	WipeZero Wipe = "zero" // zero all of them; the default
	WipeNone Wipe = "none" // nothing: the next volume may contain the deleted volume's data
)

// Class is the volume group and the layout that a StorageClass requests. It is comparable. The zero value of a field means the
// layout's default; a field that the layout does not have must be zero. Parameters has the ranges and defaults.
type Class struct {
	Group      string // a volume group's name, or "@tag" for all volume groups with the LVM tag
	Layout     Layout
	Wipe       Wipe
	Stripes    int
	StripeSize Bytes
	Mirrors    int

	Pool          string // the thin pool's name
	Overprovision int    // the limit of the provisioned size, in percent of the pool's data

	Encryption Encryption
}

// DefaultPool is the thin pool of a class that names none.
const DefaultPool = "nodelvm-thin"

// Spec is a request for one volume. It is comparable.
type Spec struct {
	Name     string // CSI's name of the volume, 1 - 128 bytes of any UTF-8: the key of idempotency
	Class    Class
	Required Bytes // the minimum; 0: DefaultSize, or the source's size
	Limit    Bytes // the maximum; 0: none

	Claim  string // "namespace/name" of the claim, for admins; may be empty
	Source ID     // thin: the snapshot or volume to restore or clone; zero for an empty volume
	Block  bool   // raw block volume: its user can read unwritten extents, so they must be zero

	Access Access // of a volume with a Source
	Limits Limits // of its I/O
}

// VolumeState is the value of a volume's state tag.
type VolumeState string

const (
	StateCreating VolumeState = "creating" // LVM has committed the volume; activation or wiping may be missing. A retry or the next start finishes or removes it
	StateZeroing  VolumeState = "zeroing"  // LVM has committed the volume, and the driver zeroes extents with unknown content before it answers. A retry or the next start removes it
	StateReady    VolumeState = "ready"
	StateDeleting VolumeState = "deleting" // its user deleted it; the driver wipes its extents
)

// Volume is one managed volume, as its tags and LVM's metadata describe it.
type Volume struct {
	ID      ID
	UUID    string // the logical volume's UUID: differs from that of a later volume with the same name
	Name    string // Spec.Name
	Claim   string // Spec.Claim
	Cluster string // UID of the cluster that created it
	Group   VGName // the volume group's name
	Class   Class  // Class.Group is the group's name
	State   VolumeState
	Size    Bytes // usable size: the logical volume of an encrypted one also has the header (DeviceSize)
	Source  ID    // Spec.Source; may be deleted
	Block   bool  // Spec.Block
	Access  Access

	Limits        Limits // of its I/O
	LimitsProblem string // what is wrong with the tag of Limits, which are zero then; empty if nothing is

	Wiped      Bytes // of a deleted volume: how much from its beginning is known to be zero and flushed
	FormatMark Bytes // the first place of its format mark on its logical volume (FormatMark); 0: it never had one

	Move   string // identifies the last move that it was or is a side of; "": none. Another volume may have its data, and its LUKS header
	Copied Bytes  // Of a receiving volume: how much from its beginning is verified and flushed.
	Base   string // Of a receiving volume: the round that it has. Copied bytes of Move may be written over it. "": none.
	Record string // what the agent notes of its move
}

// SnapshotSpec is a request for one snapshot of a thin volume. It is comparable.
type SnapshotSpec struct {
	Name   string // CSI's name of the snapshot, as in Spec
	Source ID     // the volume
	Member GroupMember
	Claim  string // the claim on another node that is cloned from it (namespace/name), which then needs it no more; "": a user's snapshot
}

// Snapshot is a read-only thin snapshot. It is never mounted; volumes are restored from it.
type Snapshot struct {
	ID      ID
	UUID    string
	Name    string // SnapshotSpec.Name
	Cluster string // UID of the cluster that created it
	Group   VGName
	Pool    string // the thin pool
	Source  ID     // SnapshotSpec.Source; may be deleted
	State   VolumeState
	Size    Bytes     // the volume's size when the snapshot was created
	Created time.Time // in whole seconds

	Encryption Encryption // the volume's
	Member     GroupMember
	Claim      string // SnapshotSpec.Claim
}

// Capacity is what this node can still allocate for a Class.
type Capacity struct {
	Available Bytes // the sum over the class's volume groups
	Largest   Bytes // the largest single volume that Create accepts
}
