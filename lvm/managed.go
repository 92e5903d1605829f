package lvm

// Holdings are what this driver, in whichever cluster, has on the node's disks.
type Holdings struct {
	Owned  []Owned         // what is ready, by ID
	Groups map[string]bool // the UUIDs of the groups that are here
	Unread []string        // as in State: groups on these devices may be missing here
}

// Owned is a volume or a snapshot.
type Owned struct {
	Volume        // of a snapshot: with its name as the volume's, and no claim
	Snapshot bool // it is a snapshot
	Foreign  bool // another cluster made it: Volume.Cluster is its UID
}
