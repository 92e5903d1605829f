// Package kube is nodelvm's part in the Kubernetes API, and the only package with client-go.
//
// Its Agent acts for one node. It enlarges this node's volumes when their claims ask for more (resizer.go), has copies of
// this node's snapshots and volumes made on this node (pin.go), has csi-provisioner look again at a claim that it overlooked
// (remind.go), labels the contents that somebody made by hand for this node's snapshots (handmade.go), tells the claims of
// trouble with their volumes (health.go), warns where a storage class binds immediately (immediate.go), finds the claims that
// a claim is of use only together with (siblings.go), and looks for volumes that nobody has, and for claims whose volume is
// gone (audit.go, orphans.go). ClusterID names the cluster. Access decides who may read the driver's metrics and status page
// (access.go).
//
// Its Janitor acts for the whole cluster, where that is wanted: what becomes of the claims of lost nodes is decided in
// loss.go, and done in janitorsteps.go. Manifests writes what takes a volume up again (adopt.go).
//
// One flow: a claim's request is raised -> the watch delivers the claim, which is now kept (claims.go) -> a worker takes
// it from the queue (agent.go) -> resizeTarget says which size comes next (resize.go) -> the PersistentVolume is read, and
// it is this node's -> the claim says that it is being resized -> host.Host.Extend -> the PersistentVolume, then the claim
// get the new size -> the kubelet grows the file system.
//
// Every node watches all claims, since neither the scheduler's choice nor a size can be selected by; what is kept of them
// is the handful that waits for something. An object that is not this node's is never written, and hardly ever read:
// which claims may concern a node is told from what the watch brings.
//
// Nothing here is on the path of a volume that exists: without the API server volumes go on being mounted and removed. Only
// a driver that starts waits for it, to learn the cluster's name, and a volume that is to be made, to learn of its siblings.
//
// The client is client-go's REST client with a scheme of the few types that are used, and the watches are client-go's
// reflectors. The generated clientset would hold every API group's types in the memory of every node.
package kube
