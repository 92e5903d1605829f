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

// ManagedVolumes are the node's managed volumes, of all clusters.
type ManagedVolumes struct {
	Owned  []ManagedVolume // the ready ones, by ID
	Groups map[VGUUID]bool // the UUIDs of the volume groups on this node
	Unread []string        // as State.MayLack: volumes that these name are missing here
}

// ManagedVolume is a managed volume or snapshot.
type ManagedVolume struct {
	Volume   // a snapshot has its name here, and no claim unless one is cloned from it
	Snapshot bool
	Of       ID   // the group snapshot that the snapshot is a part of; zero: none
	Foreign  bool // another cluster created it: Volume.Cluster is its UID
}
