// Package inventory is the vocabulary in which a node's driver tells what it has. It is apart from package lvm, which
// fills it in, so that programs on people's own machines can read it: lvm is for Linux alone.
package inventory

import (
	"fmt"
	"time"
)

// Bytes is a size in bytes.
type Bytes int64

// String renders a size as an operator reads it: exact in the largest unit in which it has at most four digits and no
// fraction, else with one decimal, rounded down.
func (b Bytes) String() string {
	units := []struct {
		size Bytes
		name string
	}{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}, {1, "B"}}
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

// Inventory is what an lvm.Host tells the people who run it: every group, and every volume and snapshot of this driver, those
// of other clusters among them. Sizes are in bytes.
type Inventory struct {
	Groups      []Group    `json:"volumeGroups"`
	Volumes     []Volume   `json:"volumes"`
	Snapshots   []Snapshot `json:"snapshots"`
	Damaged     []string   `json:"invalidTags,omitempty"`        // sentences: what bears this driver's mark and cannot be read
	Unread      []string   `json:"unreadableDevices,omitempty"`  // sentences: disks that cannot be read
	Skipped     []string   `json:"unknownDevices,omitempty"`     // sentences: devices that are not searched for groups, since it cannot be told what they are made of
	OnVolumes   []string   `json:"devicesOnVolumes,omitempty"`   // sentences: devices that the node itself has made of what volumes hold
	WipeBacklog Bytes      `json:"wipeBacklog"`                  // of the deleted volumes, what is not yet wiped and given back
	Backlogs    []Backlog  `json:"wipeBacklogs,omitempty"`       // the same, by group and namespace
	ReaderOff   string     `json:"directReadDisabled,omitempty"` // how the disks differed from LVM's report; empty while they are read directly
}

// Group tells of one volume group.
type Group struct {
	Name            string   `json:"name"`
	UUID            string   `json:"uuid"`
	Tags            []string `json:"tags,omitempty"`
	Disks           int      `json:"physicalVolumes"`
	Size            Bytes    `json:"size"` // of the disks that are there
	Free            Bytes    `json:"free"`
	MetadataSize    Bytes    `json:"metadataSize"` // of the smallest metadata area
	MetadataFree    Bytes    `json:"metadataFree"`
	Problem         string   `json:"unusable,omitempty"`        // why nothing can be changed in it, and what to do
	AutoActivation  bool     `json:"autoactivation,omitempty"`  // nothing but the driver's volumes is in it, and the node's own LVM activates them when it boots
	LockHeldSeconds int64    `json:"lockHeldSeconds,omitempty"` // for how long LVM's lock on it has been held, by whomever
	Pools           []Pool   `json:"thinPools,omitempty"`
}

// Backlog tells of the deleted volumes of a namespace that hold their extents still, in one group.
type Backlog struct {
	Group     string `json:"volumeGroup"`
	UUID      string `json:"volumeGroupUUID"`     // the group's
	Namespace string `json:"namespace,omitempty"` // of their claims; empty where that is not known
	Volumes   int    `json:"volumes"`
	Bytes     Bytes  `json:"bytes"`     // that are still to be zeroed
	Held      Bytes  `json:"allocated"` // the volumes' size, which the group gets back when they are wiped
}

// Pool tells of one thin pool.
type Pool struct {
	Name         string    `json:"name"`
	Size         Bytes     `json:"size"`
	Used         Bytes     `json:"used"` // 0 while it is inactive
	MetadataSize Bytes     `json:"metadataSize"`
	MetadataUsed Bytes     `json:"metadataUsed"`
	Promised     Bytes     `json:"provisioned"`
	Zero         bool      `json:"zero"` // new blocks are shown as zeroes
	State        PoolState `json:"state"`
}

// PoolState says whether a thin pool takes writes.
type PoolState string

const (
	PoolWorks    PoolState = "ok"
	PoolInactive PoolState = "inactive" // nobody uses it, or the kernel does not tell
	PoolFull     PoolState = "full"
	PoolFailed   PoolState = "failed" // read-only, or in need of a repair
)

// Volume tells of one volume.
type Volume struct {
	ID      string    `json:"handle"` // the volume handle
	UUID    string    `json:"uuid"`
	Group   string    `json:"volumeGroup"`
	LV      string    `json:"lv"`
	Name    string    `json:"name"` // the PersistentVolume's
	Claim   string    `json:"claim,omitempty"`
	Cluster string    `json:"clusterID"`
	State   string    `json:"state"`
	Layout  string    `json:"layout"`
	Pool    string    `json:"thinPool,omitempty"`
	Size    Bytes     `json:"size"`
	Used    *Bytes    `json:"used,omitempty"` // of a thin volume that is active: what holds blocks
	Created time.Time `json:"created,omitzero"`
}

// Snapshot tells of one snapshot.
type Snapshot struct {
	ID      string    `json:"handle"`
	Group   string    `json:"volumeGroup"`
	LV      string    `json:"lv"`
	Name    string    `json:"name"`
	Cluster string    `json:"clusterID"`
	State   string    `json:"state"`
	Source  string    `json:"sourceHandle"` // the volume's handle
	Size    Bytes     `json:"size"`
	Created time.Time `json:"created,omitzero"`
}

// Offer is what one group offers to a class.
type Offer struct {
	Group     string `json:"volumeGroup"`
	Available Bytes  `json:"available"` // to all volumes together, at best
	Largest   Bytes  `json:"maximumVolumeSize"`
	Obstacle  string `json:"reason,omitempty"` // why there is nothing, whatever the size, and what to do
}
