package lvm

import "time"

// State is what the node's disks hold, as one consistent reading. It is plain data: planning and capacity are
// functions of it. The slices in it may be shared with other readings: whoever changes something changes a copy.
type State struct {
	Groups        []Group  // by name
	UnreadDevices []string // sentences: devices that could not be read, so that groups on them may be missing here
	Unresponsive  []string // paths of those among them that do not answer: a command that touches them hangs
	Skipped       []string // sentences: devices that are not searched for groups, since it cannot be told what they are made of
	Devices       []string // paths of all devices that may carry a PV, and answer: what LVM may look at when it searches for groups
}

// Group is one volume group.
type Group struct {
	UUID           string
	Name           string
	Tags           []string
	Seqno          int64  // grows with every commit
	Checksum       uint32 // of the metadata's text; 0 in LVM's report, which does not tell it
	ExtentSize     Bytes
	MDASize        Bytes  // usable bytes of the smallest metadata area
	MDAFree        Bytes  // of those, still free for the text of the next commit
	AutoActivation bool   // the node's own LVM activates its volumes when the node boots (vgchange --setautoactivation); LVM's report does not tell
	Closed         bool   // LVM lets no command change it: it is exported, another host's, shared, or read-only
	Problem        string // why nothing may be changed in it ("exported", "foreign system id", "read-only", ...); empty if nothing stands in the way
	PVs            []PV
	LVs            []LV
}

// PV is one physical volume of a group.
type PV struct {
	UUID               string
	Device             string // path under /dev; empty if Missing
	Extents            Extents
	Missing            bool
	ReappearedDevice   string   // path of its device, if it is Missing in the metadata alone: the disk is there again
	MissingFlag        bool     // that it is Missing stands in the metadata already; LVM's report does not tell
	Unresponsive       bool     // its device does not answer: what is told of it is what stood there before
	MetadataUnreadable bool     // its device is there, and the metadata on it could not be read; LVM's report does not tell
	DuplicateDevices   []string // paths of all devices that bear it, if they are several; LVM's report does not tell
	Allocatable        bool
	Free               []Run // ascending, disjoint, maximal
	Zeroed             []Run // of those, what is known to hold nothing but zeroes, in a State that a Host shows; the disks do not tell it
}

// Run is a stretch of neighbouring extents on one PV.
type Run struct {
	Start Extents
	Count Extents
}

// LV is one logical volume, anybody's, hidden ones included.
type LV struct {
	UUID     string
	Name     string
	Tags     []string
	Created  time.Time // zero where LVM does not know
	Extents  Extents
	Type     string    // segment type of its first segment, as in lvs -o segtype
	Hidden   bool      // a part of another volume (sub-LV, pool metadata, ...)
	UsedBy   []string  // names of the volumes built on it, which would go with it: snapshots, a pool, a cache, ...
	Segments []Segment // ascending by Start, without gaps
	Pool     string    // thin: the pool that it is in
	Origin   string    // thin: what it is a snapshot of, if that is still there
	Pending  bool      // RAID: lvcreate was cut off between its commits: a leg's metadata LV is visible still
	Thin     *ThinPool // of a thin pool
}

// Segment is a stretch of an LV that lies in one way.
type Segment struct {
	Start      Extents
	Extents    Extents
	Type       string // as in lvs -o segtype, but "linear" for one stripe
	StripeSize Bytes  // 0 where there are no stripes
	RegionSize Bytes  // RAID and mirror
	Areas      []Area // linear, striped, mirror, RAID: the legs in their order; RAID: its images. nil for all other types
	Metadata   []Area // RAID: the metadata LV of each leg
}

// Area is where a leg begins: on a PV, or at the beginning of another LV. Legs that lie on PVs that are missing, and
// begin at the same extent of them, are in the order of the PVs' UUIDs: LVM's report cannot tell them apart.
type Area struct {
	PV    string // UUID; "" if it is an LV
	LV    string // name; "" if it is on a PV
	Start Extents
}

// ThinPool is what makes an LV a thin pool.
type ThinPool struct {
	Data      string // name of the LV with the blocks
	Metadata  string // name of the LV with the mappings
	ChunkSize Bytes
	Zero      bool // new blocks are zeroed before they are shown: without it, no volume of ours is made in it
	// Messages are "create VOLUME" and "delete NUMBER": what a command that was cut off had for the pool. Whether the pool
	// was told cannot be seen here. LVM's report does not have them.
	Messages []string
	// Crowded is why it may promise nothing more, in a State that a Host shows; the disks do not tell it.
	OvercommitReason string
}

// CreateMessage begins a message to make a volume; its name follows.
const CreateMessage = "create "
