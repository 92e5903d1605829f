// Package scenario runs scenarios on the cluster of a lab. A scenario is a list of steps. Each step proves one sentence against the running
// cluster and against LVM itself, read on the node with an admin's own tools, and fails with what it saw instead.
//
// The scenarios are in the packages below this one, which import it, and not each other; a test lists the exceptions. Here are the parts
// that several of them use, grouped by what they work on: claims, snapshots, pods, volume groups, published capacity, nodes, the driver. Their
// objects are in manifests/.
//
// Raise starts a lab, and installs the driver as it is shipped. Environment.Run then runs one scenario after the other in that cluster, and stops at
// the first step that does not hold. A scenario deletes what it creates; where one needs what another leaves, its comment says so. Empty thin
// pools may stay, as the driver removes them only after some time.
package scenario
