// Package scaledown writes an event on each node that an autoscaler is about to remove although volumes are on its disks: their data
// is lost with the node. It runs in nodelvm-controller, so that each node has one writer.
//
//	removal.go:  which nodes are about to be removed, and what is lost with them (pure)
//	reporter.go: facts and events
//
// Caveats:
//   - Autoscalers announce a removal by a taint. Karpenter sets it a moment before it evicts the pods, so that the event only explains.
//   - Volumes of classes with the annotation api.AnnotationOnNodeLoss: release do not count: their admin expects the loss.
package scaledown
