// Package hardware has what happens to pods' volumes on a node with NVMe disks: disks are pulled, return and fail, and the node boots with its disks in
// another order. It needs a cluster of one node on emulated hardware.
package hardware
