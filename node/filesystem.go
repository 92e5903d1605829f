package node

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
)

// Filesystem gives access to the node's paths, mounts and devices, and to the devices' content. None of its methods decides
// anything. Its errors are complete sentences for a user.
type Filesystem interface {
	// Inspect describes a path. It does not touch what is mounted there, which may be dead.
	Inspect(path string) (PathInfo, error)
	// Mounts lists where a device is mounted whole, or bound as a raw device, with all links resolved.
	Mounts(device string) ([]MountPoint, error)
	// RawDevices lists the devices that are bound as device nodes somewhere, as NodePublishVolume does for raw block volumes.
	RawDevices() ([]DeviceNumber, error)
	// Stat returns number and size of the block device at a path; anything else there is an error.
	Stat(device string) (BlockDevice, error)
	// OpenDevice opens a block device until release is called: until then the kernel gives its number to no other device.
	OpenDevice(device string) (block BlockDevice, release func(), err error)
	// Probe reads what is on the device of the logical volume with this UUID. It reads only, and ends with ctx.
	Probe(ctx context.Context, device, uuid string) (Content, error)
	// Format makes a file system on a device that holds nothing. It is never interrupted. lvm.KindInUse: the device is open.
	Format(ctx context.Context, f Formatting) error
	// RemoveMark removes the mark of mkfs from a device with a whole file system that was never mounted (see mkfsMark).
	RemoveMark(device, uuid string) error
	// Fsck repairs what needs no admin. Errors that it cannot repair are lvm.KindConflict.
	Fsck(ctx context.Context, device, fsType string) error
	// SetUUID sets the UUID of the btrfs file system on an unmounted device, if it has another one.
	SetUUID(ctx context.Context, device string, uuid [uuidSize]byte) error
	// CanResize reports whether the file system on a device is smaller than the device allows. It starts no process.
	CanResize(device, fsType string) (bool, error)
	// Resize makes a mounted file system as large as its device allows. It is never interrupted.
	Resize(device, path, fsType string) error
	// CreateMountPoint creates an empty directory, or an empty file for a block volume, and the directories above it. It returns what
	// it created, the deepest path last; if it fails, it has removed that.
	CreateMountPoint(path string, file bool) (made []string, err error)
	// Mount mounts a device's file system as mount(8) does.
	Mount(device, target, fsType string, options []string) error
	// Bind makes what is at source appear at target too; read-only in every mount namespace that the mount reaches.
	Bind(source, target string, readOnly bool) error
	// ReadOnly reports whether a block device refuses writes.
	ReadOnly(device string) (bool, error)
	// SetReadOnly makes a block device refuse the writes of all processes that have it open, or accept them again.
	SetReadOnly(device string, readOnly bool) error
	// Unmount removes the topmost mount at a path.
	Unmount(path string) error
	// RemoveMountPoint removes an empty directory or a file; it is no error if nothing is there.
	RemoveMountPoint(path string) error
	// FailedFileSystems lists the devices whose mounted file systems have errors, after which the kernel makes them read-only.
	FailedFileSystems() ([]DeviceNumber, error)
	// ReadAt reads so many bytes of a device from an offset. It is an error if the device is smaller.
	ReadAt(device string, offset int64, bytes int) ([]byte, error)
	// Usage returns the usage of the file system that is mounted at a path.
	Usage(path string) (Usage, error)
	// MountedFileSystems lists where file systems on block devices are mounted whole, by device; the oldest mount comes first.
	MountedFileSystems() (map[DeviceNumber][]MountedFileSystem, error)
	// UsageOf returns the usage of a mounted file system; fs.ErrNotExist: it is no longer the one at its path.
	UsageOf(m MountedFileSystem) (Usage, error)
	// Trim discards the unused blocks of one range of a mounted file system (FITRIM): the one that begins at an offset, on a device of this
	// size. It returns the number of bytes, and where the next range begins. io.EOF: the file system ends before the offset.
	Trim(m MountedFileSystem, from, device lvm.Bytes) (trimmed, next lvm.Bytes, err error)
	// Sync writes to the disks what a mounted file system holds in memory (syncfs(2)).
	Sync(m MountedFileSystem) error
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

// MountedFileSystem is one mount of a file system.
type MountedFileSystem struct {
	ID   int // the mount's (name_to_handle_at(2))
	Path string
	Type string

	ReadOnly bool // the mount itself, or the file system
}

// Formatting describes a file system to create.
type Formatting struct {
	Device  string
	Size    lvm.Bytes // of the device
	UUID    string    // of the logical volume
	Type    string
	Options []string // further arguments of mkfs
	Clear   bool     // the device holds what an interrupted mkfs left
}

// Usage is how full a file system is (statfs(2)).
type Usage struct {
	Total, Used, Available         lvm.Bytes // Available: to users other than root
	Inodes, InodesUsed, InodesFree int64
}
