package lvm

import (
	"context"
	"fmt"
	"strings"
)

// Machine is what a Host uses of the node: the lvm command, the kernel, and the disks. NewHost has the real ones. lvmtest has a
// simulation; one conformance suite runs over both.
type Machine struct {
	Runner Runner
	Kernel Kernel
	Reader Reader
	Delta  Delta
}

// Delta compares thin volumes, as thindelta.Command does.
type Delta interface {
	// Compare calls each for every part of two thin volumes that may differ, in chunks of the pool. The volumes are given by their numbers in the
	// pool, and the pool by the device of its metadata, which has a metadata snapshot. size is the chunk's.
	Compare(ctx context.Context, metadata string, one, two int, each func(from, length int64)) (size Bytes, err error)
}

// Runner runs lvm commands, one process each.
type Runner interface {
	// Run runs `lvm argv...` and returns the report that it printed (lvmreport(7)). Run never interrupts a command that writes.
	// It ends one that only reads (SIGTERM) when ctx is done. An exit status other than 0 is an *ExitError.
	Run(ctx context.Context, argv []string) (report []byte, err error)
}

// Reader reads the node's disks, as ondisk.Disks does.
type Reader interface {
	Read(ctx context.Context) (State, error)
}

// Kernel reads the kernel's state of devices, and changes devices without LVM.
type Kernel interface {
	// Load loads the device-mapper module unless the kernel has device-mapper.
	Load(ctx context.Context) error
	// Ready returns an error if the kernel has no device-mapper.
	Ready() error
	// TargetStates returns the state of these device-mapper targets, with load after the kernel has tried to load the absent ones. It
	// starts no process. The error says why the states are unknown.
	TargetStates(names []string, load bool) (map[string]TargetState, error)
	// Device finds the device-mapper device with this UUID; active is false if there is none.
	Device(uuid string) (path string, active bool, err error)
	// Devices lists LVM's device-mapper devices, hidden layers included.
	Devices() ([]Device, error)
	// DisksBelow returns the paths of the devices below all of LVM's devices of a volume, and the names of those that were removed
	// while the volume was active: I/O to these fails.
	DisksBelow(path string) (below, removed []string, err error)
	// Mapping returns the UUID and the name of the device-mapper device with this number, both empty for another kind of block
	// device; fs.ErrNotExist: no device has this number.
	Mapping(device uint64) (uuid, name string, err error)
	// Stacks returns what is below all volumes, and what is on them. volumes are what Devices returned.
	Stacks(volumes []Device) (Stacks, error)
	// Remove removes the device-mapper device with this UUID, if there is one, and does not change the disks. It refuses a
	// device in use.
	Remove(uuid string) (removed bool, err error)
	// ClearInactiveTable drops the device's inactive table, if it has one.
	ClearInactiveTable(uuid string) (was bool, err error)
	// SuspendDevice suspends the device-mapper device with this UUID, which freezes a file system that is mounted on it and completes the
	// I/O in flight; or it resumes the device.
	SuspendDevice(uuid string, suspend bool) error
	// MessagePool sends a message to the thin pool's device with this UUID (Linux,
	// Documentation/admin-guide/device-mapper/thin-provisioning.rst).
	MessagePool(uuid, text string) error
	// RemoveNamesOf removes the names of one removed volume and its hidden sub-LVs from /dev/mapper and /dev/GROUP, if they lead to no
	// device or to another volume's. udev removes the names that it created.
	RemoveNamesOf(group VGName, lv string, hidden []string) (removed []string, err error)
	// IsSuspended reports whether the device queues its I/O until it is resumed.
	IsSuspended(path string) (bool, error)
	// Status returns the type of a device-mapper device's first target, and the target's status: "raid", "2 AA ..." (Linux,
	// Documentation/admin-guide/device-mapper). Both are empty for a device without a table.
	Status(path string) (target, params string, err error)
	// Writes returns how many writes the device got since it exists, and of how many bytes; math.MaxInt64 if the kernel does not count them.
	Writes(path string) (count int64, size Bytes, err error)
	// CheckUnused returns KindInUse if a process has the device open, it is mounted, its node is bound at a pod's path, or another
	// device is on it.
	CheckUnused(ctx context.Context, path string) error
	// Opens returns how often the device is open; a mount and a device on it count.
	Opens(path string) (int, error)
	// IsFrozen reports whether the file system on the device is frozen (fsfreeze(8)): then the device cannot be suspended.
	// False if none is mounted.
	IsFrozen(path string) (bool, error)
	// Zero writes zeroes from one byte of the device to another, if the path still leads to that device. After each chunk it
	// flushes the device and, unless done is nil, calls done with the first byte that is not zeroed yet. It stops between two
	// chunks with ctx's error.
	Zero(ctx context.Context, d Device, from, to Bytes, done func(until Bytes)) error
	// Write writes durably to the device, if nothing uses it and the path still leads to it.
	Write(d Device, data []byte, at Bytes) error
	// Sync flushes the volatile caches of these disks.
	Sync(paths []string) error
}

// Device is one of LVM's device-mapper devices.
type Device struct {
	UUID      string // "LVM-", the UUIDs of group and volume without hyphens, and a suffix for hidden layers
	Path      string // "/dev/dm-3"
	Number    uint64 // as in stat's st_rdev, in a list of Kernel.Devices; 0: unknown
	Suspended bool   // when it was listed
	// Below has the numbers of the devices that its live table uses, in a list of Kernel.Devices; none: unknown.
	Below []uint64
}

// Stacks is what a node's devices are on.
type Stacks struct {
	// OnVolumes is a sentence for each device that the node activated from the content of a volume: logical volumes and software RAIDs.
	// The volume's user controls that content.
	OnVolumes []string
	// Disks has the paths of the disks below each device that is certainly on disks of the node, by its path.
	Disks map[string][]string
	// OnRemovedDisk has the paths of the devices of which a disk was removed while they were active.
	OnRemovedDisk map[string]bool
}

// ExitError is the failure of an lvm command.
type ExitError struct {
	Argv   []string
	Code   int    // as in lvm(8): 3 for wrong arguments, 5 for everything else; -1 for a signal
	Stderr string // the end of LVM's messages
}

func (e *ExitError) Error() string {
	words := strings.Join(strings.Fields(e.Stderr), " ")
	if words == "" {
		words = "lvm printed no message"
	}
	return fmt.Sprintf("%s (exit status %d of: lvm %s)", words, e.Code, strings.Join(e.Argv, " "))
}
