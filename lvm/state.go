package lvm

// State is what the node's disks hold, as one consistent reading. It is plain data: planning and capacity are
// functions of it.
type State struct {
	Groups []Group  // by name
	Unread []string // sentences: devices that could not be read, so that groups on them may be missing here
}

// Group is one volume group.
type Group struct {
	UUID       string
	Name       string
	Tags       []string
	Seqno      int64 // grows with every commit
	ExtentSize Bytes
	MDASize    Bytes  // usable bytes of the smallest metadata area
	MDAFree    Bytes  // of those, still free for the text of the next commit
	Problem    string // why nothing may be changed in it ("exported", "foreign system id", "read-only", ...); empty if nothing stands in the way
	PVs        []PV
	LVs        []LV
}

// PV is one physical volume of a group.
type PV struct {
	UUID        string
	Device      string // path under /dev; empty if Missing
	Extents     Extents
	Missing     bool
	Allocatable bool
	Free        []Run // ascending, disjoint, maximal
}

// Run is a stretch of neighbouring extents on one PV.
type Run struct {
	Start Extents
	Count Extents
}

// LV is one logical volume, anybody's, hidden ones included.
type LV struct {
	UUID    string
	Name    string
	Tags    []string
	Extents Extents
	Type    string   // segment type of its first segment, as in lvs -o segtype
	Hidden  bool     // a part of another volume (sub-LV, pool metadata, ...)
	UsedBy  []string // names of the volumes built on it, which would go with it: snapshots, a pool, a cache, ...
}
