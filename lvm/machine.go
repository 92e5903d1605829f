package lvm

import (
	"context"
	"fmt"
	"strings"
)

// Machine is what a Host stands on: the LVM command, the kernel's view of devices, and the disks. NewHost takes the
// real one; lvmtest has another, held to the same behaviour by one suite that runs over both.
type Machine struct {
	Runner Runner
	Kernel Kernel
	Reader Reader
}

// Runner runs LVM commands, one process each.
type Runner interface {
	// Run runs `lvm argv...` to its end and returns what it wrote as a report (lvmreport(7)). A command that writes is
	// never interrupted; one that only reads is asked to end (SIGTERM) when ctx is done. An exit status other than 0 is
	// an *ExitError.
	Run(ctx context.Context, argv []string) (report []byte, err error)
}

// Reader reads what the node's disks hold, as Disks does.
type Reader interface {
	Read(ctx context.Context) (State, error)
}

// Kernel is what only the kernel knows of devices, and what is done to them without LVM.
type Kernel interface {
	// Load brings device-mapper into the kernel where it is not there yet.
	Load(ctx context.Context) error
	// Ready tells whether device-mapper is there.
	Ready() error
	// Device finds the device-mapper device with this UUID; active is false where there is none.
	Device(uuid string) (path string, active bool, err error)
	// Devices lists the device-mapper devices of LVM that are there, hidden layers included.
	Devices() ([]Device, error)
	// Mapping tells the UUID and the name of the device-mapper device with this number, both empty for another kind of block
	// device; fs.ErrNotExist: there is no device with this number.
	Mapping(device uint64) (uuid, name string, err error)
	// DevicesOnVolumes tells, in sentences, of devices that the node itself has made of what volumes hold: logical volumes and software
	// RAIDs. Who writes a volume chose what they are.
	DevicesOnVolumes() ([]string, error)
	// Remove takes the device-mapper device with this UUID out of the kernel, if there is one; what is on the disks stays.
	// One that is in use is refused.
	Remove(uuid string) (removed bool, err error)
	// Forget drops the table that was loaded for the device with this UUID and never taken into use, if there is one.
	ClearInactiveTable(uuid string) (was bool, err error)
	// RemoveStaleNames removes the names of a group's volumes in /dev/mapper and /dev/GROUP that lead to no device, to one that
	// has another name, or to one of ours by a device node of their own, which nobody removes with its device. Devices are
	// not touched.
	RemoveStaleNames(group string, ours func(uuid string) bool) (removed []string, err error)
	// RemoveNamesOf does that for one volume that is gone, and for its hidden parts, by device-mapper's names; udev removes what
	// it made itself.
	RemoveNamesOf(group, lv string, hidden []string) (removed []string, err error)
	// Suspended tells whether I/O to the device hangs until it is resumed.
	IsSuspended(path string) (bool, error)
	// Status tells the type of a device-mapper device's first target, and what that says of itself: "raid", "2 AA ..."
	// (Linux, Documentation/admin-guide/device-mapper). Both are empty for a device without a table.
	Status(path string) (target, params string, err error)
	// Unused tells whether nobody has the device open, mounted, or below another device: KindInUse if somebody has.
	CheckUnused(ctx context.Context, path string) error
	// Frozen tells whether the file system on the device takes no writes, since somebody froze it (fsfreeze(8)): then the
	// device cannot be suspended. False where none is mounted.
	IsFrozen(path string) (bool, error)
	// Zero overwrites the device's bytes from one to the other with zeroes, if what is at its path now still is that device.
	// After each chunk it flushes the device and, if done is not nil, calls it with the first byte that is not zeroed yet.
	// It stops, with ctx's error, between two chunks.
	Zero(ctx context.Context, d Device, from, to Bytes, done func(until Bytes)) error
	// Sync flushes what was written to these disks, by whatever process, out of their volatile caches.
	Sync(paths []string) error
}

// Device is one device-mapper device of LVM.
type Device struct {
	UUID string // "LVM-", the UUIDs of group and volume without hyphens, and a suffix for hidden layers
	Path string // "/dev/dm-3"
}

// ExitError says how an LVM command ended that did not succeed.
type ExitError struct {
	Argv   []string
	Code   int    // as in lvm(8): 3 for wrong arguments, 5 for everything else; -1 for a signal
	Stderr string // LVM's own last words
}

func (e *ExitError) Error() string {
	words := strings.Join(strings.Fields(e.Stderr), " ")
	if words == "" {
		words = "it said nothing"
	}
	return fmt.Sprintf("%s (exit status %d of: lvm %s)", words, e.Code, strings.Join(e.Argv, " "))
}
