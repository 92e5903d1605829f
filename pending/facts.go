package pending

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/nodelvm/nodelvm/lvm/inventory"
)

// Facts are what Explain needs to know.
type Facts struct {
	Claim        corev1.PersistentVolumeClaim
	Class        *storagev1.StorageClass // Nil: it does not exist.
	Pods         []corev1.Pod            // Those that use the claim and have not ended.
	OtherVolumes map[string]string       // By the name of another claim of these pods: the node of its volume.
	Source       *Source                 // Of the claim's data; nil: it has none, or the caller cannot read it.
	Nodes        []Node
}

// Source is the snapshot or claim that a claim copies.
type Source struct {
	Kind, Name string
	Missing    bool
	NotReady   bool
	Node       string // that has it on its disks; "": unknown
}

// Node is a node of the cluster, with what its driver reports about the class.
type Node struct {
	Node    corev1.Node
	Silent  string            // Why the driver does not report; "": it does.
	Refused string            // Why the driver refuses the class' parameters; "": it accepts them.
	Offers  []inventory.Offer // Of the volume groups that the class selects.
	Wiping  inventory.Bytes   // Of deleted volumes; free after the driver zeroes them.
}

// Answer says why a claim has no volume.
type Answer struct {
	Claim  string       `json:"claim"` // namespace/name
	Class  string       `json:"storageClass"`
	Size   string       `json:"requested"`
	Pods   []string     `json:"pods,omitempty"`
	Causes []Cause      `json:"causes"`
	Nodes  []NodeAnswer `json:"nodes"`
}

// Cause is one reason, and what to do.
type Cause struct {
	Text string `json:"cause"`
	Fix  string `json:"fix,omitempty"`
}

// NodeAnswer says why the volume cannot be on a node.
type NodeAnswer struct {
	Node      string           `json:"node"`
	Largest   *inventory.Bytes `json:"maximumVolumeSize,omitempty"` // of the class; nil: unknown
	Obstacles []string         `json:"obstacles"`                   // none: the volume can be there
}
