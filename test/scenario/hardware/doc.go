// Package hardware has what happens to a pod's volume on a node with NVMe disks: a disk is pulled and returns, and the node boots with its disks in
// another order. It needs a cluster of one node on emulated hardware.
package hardware
