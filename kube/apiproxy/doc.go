// Package apiproxy serves the Kubernetes API to csi-provisioner in the driver's pod, without the claims and PersistentVolumes
// that other nodes handle.
//
// csi-provisioner keeps every claim and every PersistentVolume of the cluster in memory, because a watch cannot select them by
// node. The proxy reads the same lists and watches and passes on those that concern its node, so that csi-provisioner's
// memory follows the node and not the cluster. All other requests pass unchanged.
//
//	csi-provisioner -> Proxy -> API server
//	                   watch.go, list.go: read each object
//	                   concerns.go:       decide (pure)
//
// The proxy has no credentials: it forwards the token that the client sends, so whoever reaches its address can do what their
// own token allows, and nothing more. It keeps no state: it can restart at any time, and a client continues its watch.
package apiproxy
