package lvm

import (
	"fmt"
	"slices"
	"time"
)

// State is one consistent reading of the node's disks. It is plain data: plans and capacity are functions of it. States share
// their slices: a caller that changes one changes a clone.
type State struct {
	Groups        []Group  // by name
	UnreadDevices []string // sentences: unreadable devices; volume groups on them may be missing here
	Unresponsive  []string // their paths, of those that are unresponsive: a command that opens one blocks

	Skipped []string // Sentences: devices that the driver does not search for volume groups, because it cannot determine what they are made of.
	Devices []string // Paths of all responsive devices that may carry a PV: LVM may open these when it searches for volume groups.
	// Unlabeled are the paths of this node's devices without a readable label: they cannot be read, or the record of accepted physical
	// volumes names them.
	Unlabeled []string

	Unaccepted []UnacceptedPV // by path

	// MissingTargets are those of Targets that the kernel lacks and cannot load, in a State of a Host; the disks do not record it.
	MissingTargets []string
}

// Unread returns sentences: unreadable devices, and volume groups with unreadable metadata. Their volumes are missing in the state, and no more
// absent than those on an unreadable disk.
func (s State) Unread() []string {
	unread := slices.Clone(s.UnreadDevices)
	for _, g := range s.Groups {
		if g.Unreadable != "" {
			unread = append(unread, fmt.Sprintf("the metadata of volume group %s cannot be read: %s", g.Name, g.Unreadable))
		}
	}
	return unread
}

// MayLack returns sentences: Unread, and the ignored devices that may carry a group of this node. What is on them is not absent.
func (s State) MayLack() []string {
	lack := s.Unread()
	for _, u := range s.Unaccepted {
		if u.Recorded {
			lack = append(lack, fmt.Sprintf("%s has the physical volume %s of this node and is not accepted: %s", u.Device, u.PV, u.Reason))
		}
	}
	return lack
}

// Group is one volume group.
type Group struct {
	UUID           VGUUID
	Name           VGName
	Tags           []string
	Seqno          int64  // each commit raises it
	Checksum       uint32 // of the metadata's text; LVM's report lacks it
	ExtentSize     Bytes
	MDASize        Bytes // usable bytes of the smallest metadata area
	MDAFree        Bytes // free bytes of MDASize
	AutoActivation bool  // the node's own LVM activates its volumes at boot (vgchange --setautoactivation); LVM's report lacks it

	Closed  bool   // LVM refuses to change it: it is exported, foreign, shared, or read-only.
	Problem string // Why it cannot be changed ("exported", "foreign system id", "read-only", ...); empty if it can.
	// Unreadable says why LVs is empty although the group may have logical volumes; empty if it has none but these.
	Unreadable string
	Tie        string // A sentence: two physical volumes have different metadata with this Seqno; empty if none do.
	PVs        []PV
	LVs        []LV
}

// PV is one physical volume of a group.
type PV struct {
	UUID             string
	Device           string // path under /dev; empty if Missing
	Extents          Extents
	Missing          bool
	ReappearedDevice string // path of its device, if it has the MISSING flag but is back
	MissingFlag      bool   // the metadata has the MISSING flag for it; LVM's report lacks this
	Unresponsive     bool   // its device is unresponsive: the other fields are from its last answer

	BlockSize Bytes // the logical block size of its device; 0 if the kernel does not report it, or the device is missing. LVM's report lacks it

	MetadataUnreadable bool     // its device is on this node, but its metadata cannot be read; LVM's report lacks this
	DuplicateDevices   []string // paths of all devices that carry it, if there are several; LVM's report lacks them
	Allocatable        bool
	Free               []Run // ascending, disjoint, maximal
	Zeroed             []Run // the part of Free that is known to be zero, in a State of a Host; the disks do not record it
}

// Run is a contiguous extent range of one PV.
type Run struct {
	Start Extents
	Count Extents
}

// LV is one logical volume, managed or not, hidden ones included.
type LV struct {
	UUID    string
	Name    string
	Tags    []string
	Created time.Time // zero if LVM does not know it
	Extents Extents
	Type    string   // segment type of its first segment, as in lvs -o segtype
	Hidden  bool     // a component of another LV (sub-LV, pool metadata, ...)
	UsedBy  []string // names of the volumes on top of it, which its removal would remove: snapshots, a pool, a cache, ...

	Segments []Segment // ascending by Start, without gaps
	Pool     string    // thin: its pool
	Origin   string    // thin: the volume that it is a snapshot of, if that exists
	Pending  bool      // RAID: a killed lvcreate left a leg's metadata LV visible
	Thin     *ThinPool // of a thin pool; nil for other LVs

	ThinID int // thin: its number in the pool, which LVM's report lacks

	// Managed is what its tags say. The reader sets it (Group.Decode), and nothing changes it: readings share it. Nil: it has no tags of this
	// driver.
	Managed *Managed
}

// Segment is a part of an LV with one mapping.
type Segment struct {
	Start      Extents
	Extents    Extents
	Type       string // as in lvs -o segtype, but "linear" for one stripe
	StripeSize Bytes  // 0 without stripes
	RegionSize Bytes  // RAID and mirror
	Areas      []Area // linear, striped, mirror: the legs in order; RAID: its images; nil for all other types
	Metadata   []Area // RAID: the metadata LV of each leg
}

// Area is the start of a leg on a PV, or an LV that is a leg. Legs at the same extent of different missing PVs are in the order
// of the PVs' UUIDs: LVM's report cannot distinguish them.
type Area struct {
	PV    string // UUID; "" if the leg is an LV
	LV    string // name; "" if the leg is on a PV
	Start Extents
}

// ThinPool is the part of an LV that only thin pools have.
type ThinPool struct {
	Data      string // name of the data LV
	Metadata  string // name of the metadata LV
	ChunkSize Bytes
	Zero      bool // the pool zeroes new blocks; the driver creates no volume in a pool without it
	// TransactionID is LVM's count of its changes to the pool's volumes; the pool has its own (PoolStatus). LVM's report is not asked for it.
	TransactionID uint64
	// Messages are the messages "create VOLUME" and "delete NUMBER" that a killed command had to send to the pool. The metadata
	// does not record whether it sent them. LVM's report lacks them.
	Messages []string
	// OvercommitReason is why the pool can provision nothing more, in a State of a Host; the disks do not record it.
	OvercommitReason string
}

// CreateMessage begins the message that creates a volume; the volume's name follows.
const CreateMessage = "create "
