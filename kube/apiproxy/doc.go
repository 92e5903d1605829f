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
//	                   volumes.go:        which PersistentVolumes the node has
//
// The proxy has no credentials: it forwards the client's token, so a client can do only what its own token allows. It can restart at
// any time, and a client continues its watch.
//
// Tenants write claims and VolumeSnapshots. One of them can fail only itself: the proxy sends no request that such an object causes,
// holds one at a time, and passes on each at most once. Of one above api.MaxObject it passes on no event but that of the deletion.
package apiproxy
