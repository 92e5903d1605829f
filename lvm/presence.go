package lvm

// Presence is what the node has under a volume's name, with any parameters.
type Presence struct {
	Volume   *Volume // in any volume group, creating or ready; nil: no readable volume group has it, or it is deleted
	Made     bool    // it is complete: the driver may have answered a request with it
	UnderWay bool    // an operation on it is in flight

	Unsure error // why the volume may exist although Volume is nil: a disk is missing, or a device was not read
}

// SnapshotPresence is what the node has under a snapshot's name.
type SnapshotPresence struct {
	Snapshot *Snapshot
	UnderWay bool
	Unsure   error
}
