package report

import (
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// Inventory is all that a node's driver reports about its volume groups, with the volumes and snapshots of all clusters. Sizes
// are in bytes.
type Inventory struct {
	Groups    []Group    `json:"volumeGroups"`
	Volumes   []Volume   `json:"volumes"`
	Snapshots []Snapshot `json:"snapshots"`
	Damaged   []string   `json:"invalidTags,omitempty"`       // sentences: logical volumes with invalid tags of this driver
	Unread    []string   `json:"unreadableDevices,omitempty"` // sentences: unreadable disks, and volume groups with unreadable metadata
	Skipped   []string   `json:"unknownDevices,omitempty"`    // sentences: devices that the driver does not search for volume groups, because it cannot determine what they are made of

	OnVolumes   []string  `json:"devicesOnVolumes,omitempty"`   // sentences: devices that the node has activated from the content of volumes
	WipeBacklog lvm.Bytes `json:"wipeBacklog"`                  // bytes of deleted volumes that are not wiped yet
	Backlogs    []Backlog `json:"wipeBacklogs,omitempty"`       // the same, by volume group and namespace
	InFlight    int       `json:"operationsInFlight,omitempty"` // operations on volumes and snapshots that are running

	Unaccepted []lvm.UnacceptedPV `json:"notAccepted,omitempty"` // physical volumes that the driver ignores

	LostDisks []LostDisk `json:"lostDisks,omitempty"` // disks whose volume group is no longer on the node

	// MetadataDifference says how what the driver reads from the disks differs from LVM's report; empty: it does not. v1 keeps its first name.
	MetadataDifference string `json:"directReadDisabled,omitempty"`
}

// Group is one volume group.
type Group struct {
	Name            lvm.VGName `json:"name"`
	UUID            lvm.VGUUID `json:"uuid"`
	Tags            []string   `json:"tags,omitempty"`
	Disks           int        `json:"physicalVolumes"`
	Size            lvm.Bytes  `json:"size"` // without missing disks
	Free            lvm.Bytes  `json:"free"`
	MetadataSize    lvm.Bytes  `json:"metadataSize"` // of the smallest metadata area
	MetadataFree    lvm.Bytes  `json:"metadataFree"`
	Problem         string     `json:"unusable,omitempty"`        // why it cannot be changed, and what to do
	AutoActivation  bool       `json:"autoactivation,omitempty"`  // it has only managed volumes, and the node's own LVM activates them at boot.
	LockHeldSeconds int64      `json:"lockHeldSeconds,omitempty"` // for how long any process has held LVM's lock on it.
	BlockedSeconds  float64    `json:"blockedSeconds,omitempty"`  // For how long an LVM command has exceeded its time limit.
	Pools           []Pool     `json:"thinPools,omitempty"`
	ExtentSize      lvm.Bytes  `json:"extentSize,omitempty"`
	PVs             []PV       `json:"pvs,omitempty"`
}

// PV is one physical volume, with what occupies its extents. An extent in neither Allocated nor Free belongs to a volume of a
// type that the driver does not create.
type PV struct {
	UUID         string        `json:"uuid"`
	Device       string        `json:"device,omitempty"` // path; empty if it is missing
	Extents      int64         `json:"extents"`
	Missing      bool          `json:"missing,omitempty"`
	Unresponsive bool          `json:"unresponsive,omitempty"`
	Allocated    []ExtentRange `json:"allocated,omitempty"`
	Free         []ExtentRange `json:"free,omitempty"`
	Accepted     string        `json:"acceptedBy,omitempty"` // why the driver believes what is on it: "command", "first-use", ...; empty without a record
	Disk         *Disk         `json:"disk,omitempty"`       // the disk that it is on, as it was when the driver last saw it
}

// ExtentRange is a contiguous range of a physical volume's extents.
type ExtentRange struct {
	Start int64  `json:"start"`
	Count int64  `json:"count"`
	LV    string `json:"lv,omitempty"`     // the logical volume, hidden ones included; empty if the range is free
	Owner string `json:"usedBy,omitempty"` // the visible logical volume that a hidden one is a component of
}

// Backlog is the wipe backlog of one namespace in one volume group.
type Backlog struct {
	Group     lvm.VGName `json:"volumeGroup"`
	UUID      lvm.VGUUID `json:"volumeGroupUUID"`
	Namespace string     `json:"namespace,omitempty"` // of their claims; empty if unknown
	Volumes   int        `json:"volumes"`
	Bytes     lvm.Bytes  `json:"bytes"`     // not zeroed yet
	Held      lvm.Bytes  `json:"allocated"` // the volumes' size, which is free after the wipe
}

// Pool is one thin pool.
type Pool struct {
	Name         string    `json:"name"`
	Size         lvm.Bytes `json:"size"`
	Used         lvm.Bytes `json:"used"` // 0 while it is inactive
	MetadataSize lvm.Bytes `json:"metadataSize"`
	MetadataUsed lvm.Bytes `json:"metadataUsed"`
	Provisioned  lvm.Bytes `json:"provisioned"` // sum of the virtual sizes of its volumes and snapshots; of a read-only copy of a snapshot lvm.ReplaySize
	Zero         bool      `json:"zero"`        // new blocks read as zeroes
	State        PoolState `json:"state"`
	Extensions   int       `json:"extensions,omitempty"` // how often the driver has extended it since it started

	// While a command of LVM runs, the two may differ by 1.
	TransactionID       uint64  `json:"transactionID"`                 // in LVM's metadata
	KernelTransactionID *uint64 `json:"kernelTransactionID,omitempty"` // in the pool; nil while the kernel does not report it
}

// PoolState is whether a thin pool accepts writes.
type PoolState string

const (
	PoolWorks    PoolState = "ok"
	PoolInactive PoolState = "inactive" // not active, or the kernel reports no status
	PoolFull     PoolState = "full"
	PoolFailed   PoolState = "failed" // read-only, or needs a repair
)

// Volume is one managed volume.
type Volume struct {
	ID      string     `json:"handle"`
	UUID    string     `json:"uuid"`
	Group   lvm.VGName `json:"volumeGroup"`
	LV      string     `json:"lv"`
	Name    string     `json:"name"` // the PersistentVolume's
	Claim   string     `json:"claim,omitempty"`
	Cluster string     `json:"clusterID"`
	State   string     `json:"state"`
	Layout  string     `json:"layout"`
	Pool    string     `json:"thinPool,omitempty"`
	Size    lvm.Bytes  `json:"size"`
	Used    *lvm.Bytes `json:"used,omitempty"` // allocated bytes of an active thin volume
	Created time.Time  `json:"created,omitzero"`

	Block        bool        `json:"block,omitempty"`        // A raw block volume.
	Encryption   string      `json:"encryption,omitempty"`   // "luks2"; empty: none.
	Class        string      `json:"storageClass,omitempty"` // of its claim; empty if the driver does not know it
	FileSystem   *FileSystem `json:"fileSystem,omitempty"`   // of a mounted volume
	IO           *IO         `json:"io,omitempty"`           // of an active volume, if the driver limits I/O
	LastSnapshot time.Time   `json:"lastSnapshot,omitzero"`  // when its youngest snapshot was created that still exists
	IOLimits     *IOLimits   `json:"ioLimits,omitempty"`     // nil: none
}

// IOLimits are the limits of a volume's I/O at its size, per second; 0: no limit.
type IOLimits struct {
	ReadIOPS       int64     `json:"readIOPS,omitempty"`
	WriteIOPS      int64     `json:"writeIOPS,omitempty"`
	ReadBandwidth  lvm.Bytes `json:"readBandwidth,omitempty"`
	WriteBandwidth lvm.Bytes `json:"writeBandwidth,omitempty"`
}

// IOLimitsOf returns the limits of a volume; nil: none.
func IOLimitsOf(v lvm.Volume) *IOLimits {
	if v.Limits == (lvm.Limits{}) {
		return nil
	}
	at := IOLimits(v.Rates())
	return &at
}

// IO is what the kernel has counted of a volume's device since it is active, and its limits. The times are those of all requests together, without the wait for
// a limit.
type IO struct {
	Reads        int64     `json:"reads"`
	Writes       int64     `json:"writes"`
	ReadBytes    lvm.Bytes `json:"readBytes"`
	WrittenBytes lvm.Bytes `json:"writtenBytes"`
	ReadSeconds  float64   `json:"readSeconds"`
	WriteSeconds float64   `json:"writeSeconds"`

	// Limits a second; 0: none.
	ReadIOPSLimit       int64     `json:"readIOPSLimit,omitempty"`
	WriteIOPSLimit      int64     `json:"writeIOPSLimit,omitempty"`
	ReadBandwidthLimit  lvm.Bytes `json:"readBandwidthLimit,omitempty"`
	WriteBandwidthLimit lvm.Bytes `json:"writeBandwidthLimit,omitempty"`
}

// FileSystem is the usage of a mounted file system (statfs(2)).
type FileSystem struct {
	Type       string    `json:"type"`
	Size       lvm.Bytes `json:"size"`
	Used       lvm.Bytes `json:"used"`
	Available  lvm.Bytes `json:"available"`        // to users other than root
	Inodes     int64     `json:"inodes,omitempty"` // 0 if the file system has no limit
	InodesUsed int64     `json:"inodesUsed,omitempty"`
	InodesFree int64     `json:"inodesFree,omitempty"`
	Error      string    `json:"error,omitempty"` // why the usage is unknown; then all sizes are 0
}

// Snapshot is one managed snapshot.
type Snapshot struct {
	ID      string     `json:"handle"`
	Group   lvm.VGName `json:"volumeGroup"`
	LV      string     `json:"lv"`
	Name    string     `json:"name"`
	Cluster string     `json:"clusterID"`
	State   string     `json:"state"`
	Source  string     `json:"sourceHandle"` // the volume's handle
	Size    lvm.Bytes  `json:"size"`
	Created time.Time  `json:"created,omitzero"`
}

// Offer is the capacity that one volume group has for a class.
type Offer struct {
	Group     lvm.VGName `json:"volumeGroup"`
	Available lvm.Bytes  `json:"available"` // for all volumes together, at most
	Largest   lvm.Bytes  `json:"maximumVolumeSize"`
	Obstacle  string     `json:"reason,omitempty"` // why there is no capacity for any size, and what to do
}

// Disk identifies a disk for the person who must find it. Empty fields are unknown.
type Disk struct {
	Path   string    `json:"path"` // under /dev, when it was last seen
	Model  string    `json:"model,omitempty"`
	Serial string    `json:"serial,omitempty"`
	WWN    string    `json:"wwn,omitempty"`
	Slot   string    `json:"slot,omitempty"` // the enclosure's, or the address on the bus
	Size   lvm.Bytes `json:"size,omitempty"`
	Seen   time.Time `json:"lastSeen"`
}

// String describes the disk in a message.
func (d Disk) String() string {
	var words []string
	add := func(label, value string) {
		if value != "" {
			words = append(words, label+value)
		}
	}
	add("", d.Model)
	add("serial ", d.Serial)
	add("last ", d.Path)
	add("slot ", d.Slot)
	return strings.Join(words, ", ")
}

// LostDisk is a disk that is gone with its whole volume group.
type LostDisk struct {
	PV        string     `json:"pvUUID"`
	Group     lvm.VGName `json:"volumeGroup"`
	GroupUUID lvm.VGUUID `json:"volumeGroupUUID"`
	Disk
}
