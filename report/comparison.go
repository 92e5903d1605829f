package report

import (
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// Comparison is the result of the driver's last comparison of the node's disks with the objects of the cluster.
type Comparison struct {
	Time         time.Time      `json:"time,omitzero"`   // when it ended; zero: no comparison has ended yet
	Error        string         `json:"error,omitempty"` // why a later comparison failed
	Unreferenced []Unreferenced `json:"unreferencedVolumes"`
}

// Unreferenced is a managed volume or snapshot that no object in this cluster refers to. The driver never removes it.
type Unreferenced struct {
	Reason      Reason     `json:"reason"`
	Group       lvm.VGName `json:"volumeGroup"`
	LV          string     `json:"lv"`
	Handle      string     `json:"handle"`
	Name        string     `json:"name"` // of its former PersistentVolume, or of the snapshot
	Size        lvm.Bytes  `json:"size"`
	Snapshot    bool       `json:"snapshot"`
	FormerClaim string     `json:"formerClaim,omitempty"`
	Cluster     string     `json:"clusterID"` // that created it
	Created     time.Time  `json:"created,omitzero"`
	Text        string     `json:"message"`
}

// Reason says why no object in this cluster refers to a volume.
type Reason string

const (
	ReasonUnreferenced Reason = "unreferenced"  // no PersistentVolume or VolumeSnapshotContent refers to it
	ReasonAbandoned    Reason = "abandoned"     // its claim uses another volume, or was released
	ReasonOtherCluster Reason = "other-cluster" // another cluster created it
)

// Reasons lists all reasons.
var Reasons = []Reason{ReasonUnreferenced, ReasonAbandoned, ReasonOtherCluster}
