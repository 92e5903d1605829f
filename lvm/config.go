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

	Accepted Accepted // which physical volumes this node's groups may be on

	Cluster string // UID of the cluster, for the tags of created volumes; a caller that learns it later sets it with SetCluster
	Node    string // this node's name, for a tag of each changed volume group, which other nodes then refuse; "": no tag

	Encryption Encryptor // nil: encrypted volumes are never open, and deleted ones are zeroed

	Log     *slog.Logger  // nil: slog.Default()
	Observe func(Command) // called after each LVM command, from the goroutine that ran it; may be nil

	// ObserveStall is called after each attempt of a group snapshot to suspend its volumes: how long, from the first suspended to the
	// last resumed. May be nil.
	ObserveStall func(time.Duration)

	AdminCLI bool // this Host serves an admin's command while the node driver runs: no caller calls Start

	ReadyDelay    time.Duration // how long a new volume's second commit waits for other volumes to share it; 0: one second
	LockTimeLimit time.Duration // how long one operation may hold a volume group's lock before the group is blocked; 0: two minutes

	EmptyPoolsFor time.Duration // how long a thin pool that the driver created may be empty before ExtendThinPools removes it; 0: for ever
	CacheTTL      time.Duration // how old a cached State may be for capacity, lists and metrics; 0: half a second; negative: no cache
}

// Accepted configures the node's record of accepted physical volumes.
type Accepted struct {
	File        string // "": there is no record, and every device that may have a physical volume is searched.
	KubeletDir  string // The kubelet's root directory; "": the node has no kubelet, and no pods.
	Driver      string // Name of the CSI driver.
	DevicesFile string // The host's devices file (lvmdevices(8)), whose entries are accepted; "": none.
}

// AcceptedPV is an entry of that record.
type AcceptedPV struct {
	PV       string // UUID; "": whichever the device has, because it could not be read when the driver first ran
	Device   string // path, now or when it was recorded
	Group    VGName // "": it is in no group now
	Identity string // of the hardware
	Reason   string // why it is accepted
}

// UnacceptedPV is a physical volume that the node's record of accepted ones does not name, and that is no volume of a pod. The driver
// ignores it: another storage driver's user may have written it.
type UnacceptedPV struct {
	Device   string    `json:"device"` // path
	PV       string    `json:"pvUUID"`
	Identity string    `json:"identity"` // of the device's hardware
	Reason   string    `json:"reason"`   // a clause: why it is not accepted
	Since    time.Time `json:"since"`    // when the driver first ignored it

	// Recorded: the record names this PV on another device, and none has it now. The disk of a group of this node may have new hardware.
	Recorded bool `json:"recorded,omitempty"`
}

// Command is one finished LVM process.
type Command struct {
	Name     string   // "lvcreate"
	Args     []string // without the name
	Duration time.Duration
	ExitCode int // as in lvm(8), "Diagnostics"; -1 if it did not start or a signal ended it
}
