// Package nodeloss releases the claims and snapshots of lost nodes and volume groups. It runs in nodelvm-controller, under that
// account, because it changes objects of every node; the driver of a node never does.
//
// A loss, for example: a watch delivers the facts about a node, a volume or a claim (controller.go). loss.go decides whether it is lost,
// and losses.go and lasting.go record since when. After the grace period steps.go and snapshots.go change the objects, if
// PersistentVolume, claim, handle and node agree (kube/kubeclient has the checks).
//
// Caveats:
//   - Only the holder of the lease acts (cluster.Election).
//   - An annotation alone proves no loss: the controller compares it with the times on the lease.
package nodeloss
