package lvm

// Presence is what a node knows of the volume of one name, whatever a request says of it.
type Presence struct {
	Volume   *Volume // in whatever group, creating or ready; nil: no group that was read has it, or it is deleted
	Made     bool    // it lacks nothing: an earlier request may have been answered with it
	UnderWay bool    // an operation for it is under way
	Unsure   error   // why it may be there although Volume is nil: a group lacks a disk, or a device was not read
}

// SnapshotPresence is what a node knows of the snapshot of one name, whatever a request says of it; as Presence.
type SnapshotPresence struct {
	Snapshot *Snapshot
	UnderWay bool
	Unsure   error
}
