// Package kube uses the Kubernetes API for the driver of one node. In the driver, only kube and its subpackages import
// client-go.
//
// Agent acts for one node:
//
//   - It expands this node's volumes when their claims request more (resize.go).
//   - It changes the I/O limits of this node's volumes when their claims name another VolumeAttributesClass (modify.go, kube/attributes).
//   - It selects this node for clones and restores of this node's volumes and snapshots (pin.go).
//   - It makes csi-provisioner retry a claim that it missed (retrigger.go), and returns one whose selected node does not exist to the
//     scheduler (selection.go).
//   - It checks that the kubelet has registered the driver (registration.go).
//   - It labels the contents of this node's snapshots that have no label (contents.go).
//   - It reports conditions of volumes as events on their claims (health.go).
//   - It warns of storage classes that bind immediately (classes.go).
//   - It finds the peers of a claim (podclaims.go), and the nodes of their sources (peersource.go).
//   - It finds orphans, and claims whose volume no longer exists (audit.go, orphans.go).
//
// ClusterID identifies the cluster. Access decides who may read the driver's metrics and status page (access.go). Manifests
// writes the objects that adopt a volume (adopt.go).
//
// nodelvm-controller (kube/cluster and what is on top of it) acts for the whole cluster, and is optional.
//
// An expansion, for example: a user raises a claim's request. The watch delivers the claim, and the store keeps it
// (claims.go). A worker takes it from the queue (agent.go), and resizeTarget returns the next size (resize.go). The worker
// checks that the PersistentVolume is this node's, records the expansion in the claim's status and calls Host.Extend. Then
// it sets the new size on the PersistentVolume and the claim, and the kubelet resizes the file system.
//
// Every node watches all claims, because a watch can select neither by the selected node nor by size (ownvolumes.go). The store keeps only
// the few claims that wait for something. An Agent never writes another node's object and rarely reads one: the watch shows
// which claims may concern a node.
//
// Existing volumes do not depend on this package: without the API server, nodes still mount and remove them. Only two
// operations wait for the API server: the start of the driver, which needs the cluster's ID, and CreateVolume, which needs
// the claim's peers.
//
// The client is client-go's REST client with a scheme of the few types in use, and the watches are client-go's reflectors.
// The generated clientset would hold every API group's types in the memory of every node.
package kube
