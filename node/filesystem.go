package node

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
)

// Filesystem is the machine below this service: paths, mounts, devices and what is on them. Its errors are in words for
// people; none of its methods decides anything.
type Filesystem interface {
	// Look tells what stands at a path. It does not touch what is mounted there, which may be dead.
	Look(path string) (Place, error)
	// Mounts lists where a device is mounted whole, or bound as a raw device, with all links resolved.
	Mounts(device string) ([]MountPoint, error)
	// RawDevices lists the devices that are bound as device nodes somewhere, as NodePublishVolume does for raw block volumes.
	RawDevices() ([]DeviceNumber, error)
	// Stat tells number and size of the block device at a path; anything else there is an error.
	Stat(device string) (BlockDevice, error)
	// Hold opens a block device until release is called: so long the kernel gives its number to no other device.
	Hold(device string) (block BlockDevice, release func(), err error)
	// Probe tells what is on the device of the logical volume with this UUID. It reads only, and ends with ctx.
	Probe(ctx context.Context, device, uuid string) (Content, error)
	// Format makes a file system on a device that holds nothing. It is never cut short. lvm.KindInUse: the device is open.
	Format(ctx context.Context, f Formatting) error
	// Unmark removes the mark of mkfs from a device with a whole file system that was never mounted (see mkfsMark).
	Unmark(device, uuid string) error
	// Check repairs what can be repaired without a person. Errors that it leaves are lvm.KindConflict.
	Check(ctx context.Context, device, fsType string) error
	// Renew gives the btrfs file system on a device that is not mounted the UUID, if it has another.
	Renew(ctx context.Context, device string, uuid [uuidSize]byte) error
	// CanGrow tells whether the file system on a device could be larger there. It starts no process.
	CanGrow(device, fsType string) (bool, error)
	// Grow makes a mounted file system as large as its device allows. It is never cut short.
	Grow(device, path, fsType string) error
	// Make makes an empty directory, or an empty file for a block volume, and the directories above it. It tells what it
	// made, the deepest path last; if it fails, it has removed that.
	Make(path string, file bool) (made []string, err error)
	// Mount mounts a device's file system as mount(8) does.
	Mount(device, target, fsType string, options []string) error
	// Bind makes what is at source appear at target too; read-only in every mount namespace that the mount reaches.
	Bind(source, target string, readOnly bool) error
	// ReadOnly tells whether a block device takes no writes.
	ReadOnly(device string) (bool, error)
	// SetReadOnly makes a block device refuse the writes of all processes that have it open, or accept them again.
	SetReadOnly(device string, readOnly bool) error
	// Unmount removes the topmost mount at a path.
	Unmount(path string) error
	// Remove removes an empty directory or a file; it is no error if nothing is there.
	Remove(path string) error
	// Failed lists the devices whose mounted file systems have met errors, after which the kernel makes them read-only.
	Failed() ([]DeviceNumber, error)
	// ReadAt reads so many bytes of a device from an offset. It is an error if the device is smaller.
	ReadAt(device string, offset int64, bytes int) ([]byte, error)
	// Usage tells how full the file system mounted at a path is.
	Usage(path string) (Usage, error)
}

// BlockDevice is a block device's number and size.
type BlockDevice struct {
	Number DeviceNumber
	Size   lvm.Bytes
}

// MountPoint is one place where a device is mounted or bound.
type MountPoint struct {
	Path     string
	ReadOnly bool // the mount itself
}

// Formatting is a file system to be made.
type Formatting struct {
	Device  string
	Size    lvm.Bytes // of the device
	UUID    string    // of the logical volume
	Type    string
	Options []string // further arguments of mkfs
	Clear   bool     // the device holds what is left of a mkfs that was cut short
}

// Usage is how full a file system is (statfs(2)).
type Usage struct {
	Total, Used, Available         lvm.Bytes // Available: to users other than root
	Inodes, InodesUsed, InodesFree int64
}
