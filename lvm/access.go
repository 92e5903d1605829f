package lvm

// Access is who may write to a volume: the value of its access tag.
type Access string

const (
	AccessWritable Access = "" // its users
	// AccessReplay: a read-only copy. Its file system may need its journal, which the driver replays before the first use; nothing
	// else writes to it.
	AccessReplay Access = "replay"
	// AccessReplaying: the same, and the driver began to replay the journal, so the file system may have written anything.
	AccessReplaying Access = "replaying"
	// AccessReplayingFull: the same, and another replay was interrupted before. Together they may have written more than ReplaySize.
	AccessReplayingFull Access = "replaying-full"
	AccessReadOnly      Access = "readonly" // a read-only copy: nothing writes to it, and nothing needs to
	// AccessReadOnlyFull: the same, and the replay of its journal may have written more than ReplaySize.
	AccessReadOnlyFull Access = "readonly-full"
)

// known reports whether a tag may have the value.
func (a Access) known() bool {
	return a == AccessWritable || a.NeedsReplay() || a == AccessReadOnly || a == AccessReadOnlyFull
}

// NeedsReplay reports whether the volume is a read-only copy without the record that its journal was replayed.
func (a Access) NeedsReplay() bool {
	return a == AccessReplay || a == AccessReplaying || a == AccessReplayingFull
}

// ReadOnly reports whether no user may write to the volume.
func (a Access) ReadOnly() bool { return a != AccessWritable }

// Description describes the access for messages.
func (a Access) Description() string {
	if a.ReadOnly() {
		return "read-only"
	}
	return "writable"
}

// AccessTag returns the access tag of a read-only copy.
func AccessTag(a Access) string { return EncodeTag(keyAccess, string(a)) }

// ReplaySize returns the provisioned size of a read-only copy of a snapshot: what the replay of its journal usually writes at most. It is at
// least the journal that mkfs.ext4 and the log that mkfs.xfs give a file system of this size. Blocks that are far apart take a chunk of the
// pool each, so a replay can write more (AccessReadOnlyFull).
func ReplaySize(size Bytes) Bytes { return min(size, max(64*MiB, size/64), 2*GiB) }
