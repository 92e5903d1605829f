package lvm

// ManagedVolumes are the node's managed volumes, of all clusters.
type ManagedVolumes struct {
	Owned  []ManagedVolume // the ready ones, by ID
	Groups map[VGUUID]bool // the UUIDs of the volume groups on this node
	Unread []string        // as State.Unread: volumes that these name are missing here
}

// ManagedVolume is a managed volume or snapshot.
type ManagedVolume struct {
	Volume   // a snapshot has its name here, and no claim
	Snapshot bool
	Of       ID   // the group snapshot that the snapshot is a part of; zero: none
	Foreign  bool // another cluster created it: Volume.Cluster is its UID
}
