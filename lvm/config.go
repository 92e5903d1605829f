package lvm

import (
	"log/slog"
	"time"
)

// Config says where a Host works. The zero value of each field is explained at the field.
type Config struct {
	SystemDir string        // private directory for our own lvm.conf (LVM_SYSTEM_DIR); NewHost writes it
	LockDir   string        // the host's LVM lock directory, so that an admin's lvm and ours exclude each other
	BackupDir string        // host directory for the metadata backup of each group
	Cluster   string        // UID of the cluster; goes into the tags of each volume made here
	Node      string        // this node's name; goes into a tag of each group that is changed here, and other nodes leave that alone; "": no tag
	Log       *slog.Logger  // nil: slog.Default()
	Observe   func(Command) // nil, or called after each LVM command, from the goroutine that ran it
	AdminCLI  bool          // a driver runs on this node, and this Host is an admin's hand beside it: it is never started

	ReadyDelay    time.Duration // how long a new volume's second commit waits for others to share it; 0: one second
	LockTimeLimit time.Duration // how long one operation may hold a group's lock before the group counts as hung; 0: two minutes
	EmptyPoolsFor time.Duration // how long a thin pool that the driver made may hold nothing until TendPools removes it; 0: for ever
	CacheTTL      time.Duration // how old the disks' answer may be for capacity, lists and figures; 0: half a second; negative: never kept
}

// Command is one finished LVM process.
type Command struct {
	Name     string   // "lvcreate"
	Args     []string // what followed the name
	Duration time.Duration
	ExitCode int // as in lvm(8), "Diagnostics"; -1 if it did not start or died of a signal
}
