package pending

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// Facts are what Explain needs to know.
type Facts struct {
	Claim        corev1.PersistentVolumeClaim
	Class        *storagev1.StorageClass // Nil: it does not exist.
	Pods         []corev1.Pod            // Those that use the claim and have not ended.
	OtherVolumes map[string]string       // By the name of another claim of these pods: the node of its volume.
	Waiting      []Waiting               // Other claims of these pods.
	Source       *Source                 // Of the claim's data; nil: it has none, or the caller cannot read it.
	Nodes        []Node

	Events      []corev1.Event // About the claim.
	Unread      []string       // Sentences: what the caller could not read.
	ClassFaults []Cause        // What the caller knows to be wrong with the class.
	Namespace   string         // Of the driver; "": unknown.
	Now         time.Time

	rules []podRules // of Pods; nil: not parsed yet
}

// Waiting is a claim that waits for a volume of this driver.
type Waiting struct {
	Name, Class string
	Size        lvm.Bytes
}

// Source is the snapshot or claim that a claim copies.
type Source struct {
	Kind, Name string
	Missing    bool
	NotReady   bool
	Node       string // that has it on its disks; "": unknown
	Foreign    string // the other driver that has it; "": none
}

// Node is a node of the cluster, with what its driver reports about the class.
type Node struct {
	Node      corev1.Node
	NoVolumes string         // Why the node can have no volume of the driver; "": it can.
	Unknown   string         // Why the driver's report lacks the capacity for the class; "": it has it.
	Refused   string         // Why the driver refuses the class' parameters; "": it accepts them.
	Offers    []report.Offer // Of the volume groups that the class selects.
	Wiping    lvm.Bytes      // Of deleted volumes; free after the driver zeroes them.

	CSINode     *storagev1.CSINode       // What the kubelet has registered, perhaps nothing; nil: unknown.
	Pod         string                   // Of the driver; "": unknown.
	Provisioner string                   // Why csi-provisioner in it does not run; "": it does, or that is unknown.
	Ignored     []string                 // Devices with a physical volume that the driver does not accept.
	Free        map[lvm.VGName]lvm.Bytes // Unallocated extents, by volume group.
	OnlyGroup   map[string]lvm.VGName    // By a class of Facts.Waiting whose layout is not thin: its volume group, if it has one here.
}

// Answer says why a claim has no volume, or why a pod does not start whose claims have theirs.
type Answer struct {
	Claim  string       `json:"claim"` // namespace/name; of an answer about a pod: empty, as the next two
	Class  string       `json:"storageClass"`
	Size   string       `json:"requested"`
	Pod    string       `json:"pod,omitempty"` // namespace/name
	Pods   []string     `json:"pods,omitempty"`
	Causes []Cause      `json:"causes"`
	Nodes  []NodeAnswer `json:"nodes"`
	Unread []string     `json:"unread,omitempty"` // sentences: what the caller could not read, so that causes may be missing
}

// Cause is one reason, and what to do.
type Cause struct {
	Text string `json:"cause"`
	Fix  string `json:"fix,omitempty"`
}

// NodeAnswer says why the volume cannot be on a node.
type NodeAnswer struct {
	Node      string     `json:"node"`
	Largest   *lvm.Bytes `json:"maximumVolumeSize,omitempty"` // of the class; nil: unknown
	Obstacles []string   `json:"obstacles"`                   // none: the volume can be there
	Unknown   bool       `json:"unknown,omitempty"`           // an obstacle is that the node's report lacks the capacity

	fixes []string // what removes the obstacles
}
