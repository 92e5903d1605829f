package dashboard

import (
	"context"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// Source reads the cluster. Its methods return what the user may read; Objects.Limits says what the user may not read.
type Source interface {
	// Nodes lists the names of the nodes with a driver.
	Nodes(ctx context.Context) ([]string, error)
	// Page reads the status page of a node's driver.
	Page(ctx context.Context, node string) (report.Node, error)
	// Objects lists the objects of volumes.
	Objects(ctx context.Context) Objects
	// Events lists the events about a claim and pods of a namespace.
	Events(ctx context.Context, namespace, claim string, pods []string) ([]Event, error)
}

// Objects are the objects in the API that volumes belong to.
type Objects struct {
	Volumes []Volume
	Claims  []Claim
	Pods    map[string][]string // by "namespace/claim", names of pods
	Limits  []string            // sentences: what could not be read, and why
}

// Volume is a PersistentVolume of the driver.
type Volume struct {
	Name, Handle, Node, Claim, Class, Phase string
	Encryption, KeySecret                   string // KeySecret is "namespace/name"
	Size                                    lvm.Bytes
}

// Claim is a PersistentVolumeClaim of the driver.
type Claim struct {
	Claim, Node, Class, Phase, Volume string // Claim is "namespace/name"
	Size                              lvm.Bytes
}

// Event is an event of the API.
type Event struct {
	Time    time.Time `json:"time"`
	Type    string    `json:"type"`
	Reason  string    `json:"reason"`
	Object  string    `json:"object"` // kind and name
	Message string    `json:"message"`
	Count   int32     `json:"count"`
}

// Hello is the first event of a stream.
type Hello struct {
	Cluster string `json:"cluster"` // URL of the API server
	Version string `json:"version"` // of the plugin
}

// Status is the progress of reading.
type Status struct {
	Known    int       `json:"known"`         // nodes that the source or an object names
	Read     int       `json:"read"`          // of these, with an answer or an error
	Interval float64   `json:"interval"`      // seconds between two reads of one node, or more if reading takes longer
	Time     time.Time `json:"time,omitzero"` // of the last complete round; zero during the first
	Limits   []string  `json:"limits,omitempty"`
}

// Health is the severity of the worst condition of an item, group or node.
type Health string

const (
	HealthOK      Health = "ok"
	HealthWarning Health = "warning"
	HealthError   Health = "error"
	HealthUnknown Health = "unknown" // the node does not answer, or does not report the item
)

// Node is one node.
type Node struct {
	Name     string   `json:"name"`
	Health   Health   `json:"health"`
	Version  string   `json:"version,omitempty"`
	Kernel   string   `json:"kernel,omitempty"`
	Problems []string `json:"problems,omitempty"`
	Stale    bool     `json:"stale,omitempty"` // the node did not answer: groups and items are from its last answer
	Groups   []Group  `json:"groups"`
	Items    []Item   `json:"items"`
	Omitted  int      `json:"omitted,omitempty"` // number of entries beyond the limits

	Wipe lvm.Bytes `json:"wipeBacklog,omitempty"` // bytes of deleted volumes that are not wiped yet
}

// Group is one volume group.
type Group struct {
	Name       string    `json:"name"`
	UUID       string    `json:"uuid"`
	Tags       []string  `json:"tags,omitempty"`
	Size       lvm.Bytes `json:"size"`
	Free       lvm.Bytes `json:"free"`
	ExtentSize lvm.Bytes `json:"extentSize"`
	Health     Health    `json:"health"`
	Messages   []string  `json:"messages,omitempty"`
	Disks      []Disk    `json:"disks"`
	Pools      []Pool    `json:"pools,omitempty"`
}

// Disk is a physical volume.
type Disk struct {
	Device   string     `json:"device"`             // empty if the disk is missing
	LastPath string     `json:"lastPath,omitempty"` // of a missing disk
	Model    string     `json:"model,omitempty"`
	Serial   string     `json:"serial,omitempty"`
	Slot     string     `json:"slot,omitempty"`
	UUID     string     `json:"uuid,omitempty"`
	State    string     `json:"state"` // ok, missing, unresponsive
	Extents  int64      `json:"extents"`
	Ranges   [][3]int64 `json:"ranges"` // first extent, number of extents, index in Node.Items or ItemFree or ItemOther
}

// Values instead of an item's index in a range.
const (
	ItemFree  = -1
	ItemOther = -2
)

// Pool is one thin pool with its volumes and snapshots.
type Pool struct {
	Item        int       `json:"item"`
	Used        lvm.Bytes `json:"used"`
	Size        lvm.Bytes `json:"size"`
	Provisioned lvm.Bytes `json:"provisioned"`
	MetaUsed    lvm.Bytes `json:"metadataUsed"`
	MetaSize    lvm.Bytes `json:"metadataSize"`
	Items       []int     `json:"items"` // its volumes and snapshots, as indexes in Node.Items
}

// Kind is what an item is.
type Kind string

const (
	KindVolume   Kind = "volume"
	KindSnapshot Kind = "snapshot"
	KindPool     Kind = "pool"
	KindWipe     Kind = "wipe"    // deleted, and being wiped
	KindOther    Kind = "other"   // a logical volume that the driver does not manage
	KindPending  Kind = "pending" // a claim, or a PersistentVolume, that the node's document does not show
	KindUnread   Kind = "unread"  // of a node whose document could not be read whole
)

// FileSystem is the use of a mounted file system. Whole percents keep the number of changes small that a page gets.
type FileSystem struct {
	Type   string `json:"type"`
	Space  int    `json:"spacePercent"` // in use, or for root only
	Inodes int    `json:"inodesPercent"`
}

// Item is a logical volume, or a claim for one.
type Item struct {
	ID      string      `json:"id"` // unique in the node
	Kind    Kind        `json:"kind"`
	Health  Health      `json:"health"`
	State   string      `json:"state"`
	Group   string      `json:"group,omitempty"`
	LV      string      `json:"lv,omitempty"`
	UUID    string      `json:"uuid,omitempty"`
	Layout  string      `json:"layout,omitempty"`
	Pool    string      `json:"pool,omitempty"`
	Size    lvm.Bytes   `json:"size"`
	Used    *lvm.Bytes  `json:"used,omitempty"`
	FS      *FileSystem `json:"fileSystem,omitempty"` // nil: not mounted
	Crypt   string      `json:"encryption,omitempty"` // "luks2 (Secret namespace/name)"; empty: none
	Claim   string      `json:"claim,omitempty"`
	PV      string      `json:"pv,omitempty"`
	Phase   string      `json:"phase,omitempty"` // of the PersistentVolume
	Class   string      `json:"class,omitempty"`
	Source  string      `json:"source,omitempty"`  // handle of a snapshot's volume
	Cluster string      `json:"cluster,omitempty"` // that created it, if it is not this one
	Pods    []string    `json:"pods,omitempty"`
	Created time.Time   `json:"created,omitzero"`
	Text    []string    `json:"messages,omitempty"`
}
