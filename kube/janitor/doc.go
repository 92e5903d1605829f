// Package janitor releases the claims and snapshots of lost nodes and volume groups. It runs in its own Deployment under its own
// service account, because it changes objects of every node; the driver of a node never does.
//
// A loss, for example: a watch delivers a node, a volume or a claim (janitorwatch.go). loss.go decides whether it is lost,
// and losses.go and janitorlosses.go record on the lease since when. After the grace period janitorsteps.go and
// janitorsnapshots.go change the objects, if PersistentVolume, claim, handle and node agree (kube/kubeclient has the checks).
//
// Caveats:
//   - Only the holder of the lease acts (lease.go).
//   - An annotation alone proves no loss: the janitor compares it with the times on the lease.
package janitor
