// Package kubeclient is the client of the API server that kube and nodelvm-controller share: requests and watches (client.go,
// filteredstore.go), the events that both write (events.go), VolumeSnapshotContents (contents.go), and the checks that objects which
// refer to one another agree (chain.go).
//
// The client is client-go's REST client with a scheme of the few types in use, and the watches are client-go's reflectors.
// The generated clientset would hold every API group's types in the memory of every node.
//
// Caveat: a filtered store keeps only what its filter returns. An object that is not in it may exist.
package kubeclient
