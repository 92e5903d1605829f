// Package conformance runs Kubernetes' suite for external storage drivers (k8s.io/kubernetes/test/e2e/storage/external) in a lab's
// cluster, for a linear, a thin and an encrypted class, and its specs of group snapshots for a class whose volumes are on one node.
//
// The folder definitions declares what the driver claims, and [Exclusions] lists the specs that are not claimed, with reasons. All
// others are claimed: a spec that fails, or that the suite skips, has not passed. Run stores each result in a folder, so that a
// later run continues an interrupted one.
package conformance
