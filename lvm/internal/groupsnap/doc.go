// Package groupsnap takes snapshots of several thin volumes at one moment, and removes them together.
//
// Create locks the groups of the volumes, and plans (plan.go). Then it reserves a snapshot of each volume, as for an ordinary snapshot, with
// the state creating: LVM commits its metadata, and the tags are the record of what follows. Then come device-mapper's requests alone, without
// a process or a write to a disk (stall.go): suspend each volume, tell each pool to delete the reserved device and to create it again from the
// suspended volume, resume. LVM's metadata does not change, because a device keeps its number. At last Create tags the members as ready, the first
// one in a commit after the others.
//
// A start after a crash resumes the devices as after any command, and removes what the first member's state calls unfinished.
//
// Caveats: never run lvcreate -s while an origin is suspended. LVM commits a transaction of which the kernel learns nothing, and the
// pool can never be activated again. A process that reads a suspended device waits, even for a signal: while volumes are suspended, this
// package starts none, and writes no log.
package groupsnap
