// Package apiproxy serves the Kubernetes API to csi-provisioner in the driver's pod, without the claims and PersistentVolumes
// that other nodes handle, and without the VolumeSnapshots that it only stores.
//
// csi-provisioner keeps every claim, PersistentVolume and VolumeSnapshot of the cluster in memory, because a watch cannot select
// them by node. The proxy reads the same lists and watches, and passes on only the objects that concern its node, so that
// csi-provisioner's memory depends on the node and not on the cluster. All other requests pass unchanged.
//
//	csi-provisioner -> Proxy -> API server
//	                   watch.go, list.go: read each claim and PersistentVolume (protobuf)
//	                   snapshots.go:      read each VolumeSnapshot (JSON)
//	                   concerns.go:       decide (pure)
//	                   sources.go:        which claims the node's clones wait for
//
// The proxy has no credentials: it forwards the client's token, so a client can do only what its own token allows. It can restart at
// any time, and a client continues its watch. It then no longer knows which sources the clones wait for: if such a source changes
// before its clone has begun, csi-provisioner loses it, and the driver's retry of the claim brings it back.
package apiproxy
