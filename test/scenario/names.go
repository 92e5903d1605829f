package scenario

// Storage classes of the manifests.
const (
	FastClass    = "fast"    // linear, of classes.yaml
	ThinClass    = "thin"    // of life-classes.yaml
	GrowingClass = "growing" // linear, of load-classes.yaml
)

// Nodes of the lab.
const (
	FirstNode = "node-1" // where manifests and scenarios hold claims that name their node
	BigNode   = "node-3" // the lab gives it the largest disks
)

// AnnSelectedNode is the annotation of a claim with the node that the scheduler selected.
const AnnSelectedNode = "volume.kubernetes.io/selected-node"

// WorkloadLabel selects the claims of load-claim.yaml, and what a workload creates.
const WorkloadLabel = "nodelvm-test=workload"

// BusyboxImage is the image of the scenarios' pods.
const BusyboxImage = "registry.k8s.io/e2e-test-images/busybox:1.37.0-2"
