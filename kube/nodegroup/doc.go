// Package nodegroup publishes the capacity of nodes that do not exist yet, for cluster-autoscaler.
//
// Before it adds a node, cluster-autoscaler checks with the scheduler's code whether a pending pod would fit a node from the node
// group's template. For a pod with a volume, this needs a CSIStorageCapacity whose topology matches the template's labels.
// Publisher writes one for each node group and storage class: with the declared capacity, or with one that it learns from the
// group's nodes.
//
//	groups.go:    the declared node groups
//	templates.go: the objects that should exist (pure)
//	learn.go:     the capacity that a group learns (pure)
//	memory.go:    what must be remembered for it: which nodes never had a volume
//	publisher.go: facts, and writes the difference
//
// Each object is owned by its StorageClass, so that Kubernetes deletes it with the class. csi-provisioner ignores these objects,
// because they lack its label.
package nodegroup
