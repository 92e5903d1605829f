// Package lvm has the types of the storage engine. They describe the content of the disks (State, Group, PV, LV), requests
// (Class, Spec, SnapshotSpec) and results (Volume, Snapshot, Capacity, Presence). Conditions are in condition.go, the kinds of
// errors in errors.go, the parameters of a class in parameters.go, and the records that describe a volume, LVM tags and the format
// mark, in records.go and decode.go. The package is plain data and pure functions: it reads no disk and starts no process.
//
// The packages that act:
//
//	lvm/host             operations on this node's volume groups; cmd/nodelvm creates the one Host of the node
//	lvm/internal/ondisk  reads LVM's metadata from the disks into a State
//	lvm/internal/alloc   plans volumes and computes capacity from a State
//	lvm/internal/lvmcmd  turns a plan into lvm commands, and runs them
//	internal/dm          device-mapper, sysfs, mounts, zeroing and flushing
//	lvm/lvmtest          a fake lvm command; a conformance suite runs over the fake and the real one
//
// The tag nodelvm.state is creating, zeroing, ready or deleting. The LVM commit that creates a volume writes all of its tags,
// so a driver that starts on an old node needs no other record.
//
// Caveats:
//
//   - The driver changes no logical volume without its tags, with damaged ones, or of another cluster.
//   - States share their slices: a caller that changes one changes a clone.
package lvm
