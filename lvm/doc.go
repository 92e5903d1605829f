// Package lvm holds the vocabulary of the storage engine: what the disks hold (State, Group, PV, LV), what a caller asks
// for (Class, Spec, SnapshotSpec), what it gets (Volume, Snapshot, Capacity, Presence), what is wrong (Condition types in
// condition.go, Error kinds in errors.go), and how a volume is remembered in LVM tags (tags.go). Everything here is plain
// data and pure functions: nothing reads a disk or starts a process.
//
// The packages that act:
//
//	lvm/host             operations on this node's volume groups; cmd/nodelvm makes the one Host of the node
//	lvm/internal/ondisk  reads LVM's metadata from the disks into a State
//	lvm/internal/alloc   plans volumes and computes capacity from a State
//	lvm/internal/lvmcmd  turns a plan into lvm commands, and runs them
//	lvm/internal/dm      device-mapper, sysfs, zeroing and flushing
//	lvm/lvmtest          a fake of the lvm command, held to the real one by a conformance suite
//
// The life of a volume in tags: nodelvm.state is creating, ready, or deleting. The LVM commit that creates the volume
// writes all of its tags, so a driver that starts on an old node needs no other record.
//
// Caveats:
//   - A logical volume without this driver's tags, with damaged ones, or of another cluster is never changed.
//   - The slices of a State can be shared with other readings: a caller that changes one changes a copy.
package lvm
