package lvm

import (
	"context"
	"log/slog"
	"time"
)

// Config says where a Host works. The zero value of each field is explained at the field.
type Config struct {
	SystemDir string        // private directory for our own lvm.conf (LVM_SYSTEM_DIR); NewHost writes it
	LockDir   string        // the host's LVM lock directory, so that an admin's lvm and ours exclude each other
	BackupDir string        // host directory for the metadata backup of each group
	Cluster   string        // UID of the cluster; goes into the tags of each volume made here
	Log       *slog.Logger  // nil: slog.Default()
	Observe   func(Command) // nil, or called after each LVM command, from the goroutine that ran it
}

// Command is one finished LVM process.
type Command struct {
	Name     string   // "lvcreate"
	Args     []string // what followed the name
	Duration time.Duration
	ExitCode int // as in lvm(8), "Diagnostics"; -1 if it did not start or died of a signal
}

// Metrics is a reading of the figures that a Host is watched by.
type Metrics struct {
	Groups      []GroupMetrics
	Volumes     map[VolumeState]int // of this cluster
	WipeBacklog Bytes               // size of the volumes that are deleted and not yet wiped
	InFlight    int                 // creates, deletes and activations under way
}

// GroupMetrics are the figures of one volume group.
type GroupMetrics struct {
	Name string
	UUID string
	Size Bytes // of all its disks that are there
	Free Bytes // of those, not in use by any volume
}

// Host is LVM on this node.
type Host struct {
	cfg Config
}

// NewHost prepares LVM's configuration; it touches no volume.
func NewHost(cfg Config) (*Host, error) { return &Host{cfg: cfg}, nil }

func (h *Host) Start(ctx context.Context) error { return nil }

func (h *Host) Close(ctx context.Context) error { return nil }

func (h *Host) Ready(ctx context.Context) error { return nil }

func (h *Host) Create(ctx context.Context, spec Spec) (Volume, error) {
	return Volume{}, Errorf(KindInternal, "not built yet")
}

func (h *Host) Delete(ctx context.Context, id ID) error { return Errorf(KindInternal, "not built yet") }

func (h *Host) Lookup(ctx context.Context, id ID) (Volume, error) {
	return Volume{}, Errorf(KindInternal, "not built yet")
}

func (h *Host) List(ctx context.Context) ([]Volume, error) {
	return nil, Errorf(KindInternal, "not built yet")
}

func (h *Host) Capacity(ctx context.Context, class Class) (Capacity, error) {
	return Capacity{}, Errorf(KindInternal, "not built yet")
}

func (h *Host) Activate(ctx context.Context, id ID, uuid string) (device string, err error) {
	return "", Errorf(KindInternal, "not built yet")
}

func (h *Host) Device(id ID, uuid string) (device string, active bool, err error) {
	return "", false, Errorf(KindInternal, "not built yet")
}

func (h *Host) Metrics() Metrics { return Metrics{} }
