// Package janitor releases the claims and snapshots of lost nodes and volume groups. It runs in its own Deployment under its own
// service account, because it changes objects of every node; the driver of a node never does.
//
// One flow: a watch delivers a node, a volume or a claim (janitorwatch.go) -> loss.go decides whether a loss is certain and
// since when (losses.go keeps the times on the lease) -> after the grace period janitorsteps.go and janitorsnapshots.go act on
// objects whose whole chain agrees (PersistentVolume, claim, handle, node: the checks are in kube/kubeclient).
//
// Caveats:
//   - Only the holder of the lease acts (lease.go).
//   - An annotation that somebody else wrote proves no loss.
package janitor
