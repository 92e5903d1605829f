package lvm

// ManagedVolumes are what this driver, in whichever cluster, has on the node's disks.
type ManagedVolumes struct {
	Owned  []ManagedVolume // what is ready, by ID
	Groups map[string]bool // the UUIDs of the groups that are here
	Unread []string        // as in State: groups on these devices may be missing here
}

// ManagedVolume is a volume or a snapshot.
type ManagedVolume struct {
	Volume        // of a snapshot: with its name as the volume's, and no claim
	Snapshot bool // it is a snapshot
	Foreign  bool // another cluster made it: Volume.Cluster is its UID
}
