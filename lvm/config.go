package lvm

import (
	"log/slog"
	"time"
)

// Config configures a Host. Each field documents its zero value.
type Config struct {
	SystemDir string // private directory for the driver's lvm.conf (LVM_SYSTEM_DIR); NewHost writes it
	LockDir   string // the host's LVM lock directory, so that an admin's lvm and the driver's lvm exclude each other
	BackupDir string // host directory for the metadata backup of each volume group

	Cluster string // UID of the cluster, for the tags of created volumes; a caller that learns it later sets it with SetCluster
	Node    string // this node's name, for a tag of each changed volume group, which other nodes then refuse; "": no tag

	Encryption Encryptor // nil: encrypted volumes are never open, and deleted ones are zeroed

	Log      *slog.Logger  // nil: slog.Default()
	Observe  func(Command) // called after each LVM command, from the goroutine that ran it; may be nil
	AdminCLI bool          // this Host serves an admin's command while the node driver runs: no caller calls Start

	ReadyDelay    time.Duration // how long a new volume's second commit waits for other volumes to share it; 0: one second
	LockTimeLimit time.Duration // how long one operation may hold a volume group's lock before the group is blocked; 0: two minutes

	EmptyPoolsFor time.Duration // how long a thin pool that the driver created may be empty before ExtendThinPools removes it; 0: for ever
	CacheTTL      time.Duration // how old a cached State may be for capacity, lists and metrics; 0: half a second; negative: no cache
}

// Command is one finished LVM process.
type Command struct {
	Name     string   // "lvcreate"
	Args     []string // without the name
	Duration time.Duration
	ExitCode int // as in lvm(8), "Diagnostics"; -1 if it did not start or a signal ended it
}
