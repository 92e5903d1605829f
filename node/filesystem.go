package node

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
)

// Filesystem gives access to the node's paths, mounts and devices, and to the devices' content. None of its methods decides
// anything. Its errors are complete sentences for a user.
type Filesystem interface {
	// Inspect describes a path. It does not access a file system that is mounted there, which may be unresponsive.
	Inspect(path string) (PathInfo, error)
	// Mounts lists the mount points of a device's whole file system and the binds of the raw device, with all links resolved.
	Mounts(device string) ([]MountPoint, error)
	// RawDevices lists the devices whose device nodes are bound somewhere, as NodePublishVolume binds raw block volumes.
	RawDevices() ([]DeviceNumber, error)
	// Stat returns number and size of the block device at a path. It is an error if the path has none.
	Stat(device string) (BlockDevice, error)
	// OpenDevice opens a block device until release is called: until then the kernel gives its number to no other device.
	OpenDevice(device string) (block BlockDevice, release func(), err error)
	// Probe reads the content of a device, which may have this mark. It never writes, and ends with ctx.
	Probe(ctx context.Context, device string, mark Mark) (Content, error)
	// Format creates a file system on a device that was never mounted, under its format mark, which it removes at the end. It is never
	// interrupted. lvm.KindInUse: the device is open.
	Format(ctx context.Context, f Formatting) error
	// RemoveMark removes the format mark from a device, durably. Nothing on the device may be mounted.
	RemoveMark(device string, mark Mark) error
	// WriteMark writes the format mark at its first place, durably.
	WriteMark(device string, mark Mark) error
	// Fsck makes the repairs that need no admin. lvm.KindConflict: it cannot repair the errors.
	Fsck(ctx context.Context, device, fsType string) error
	// SetUUID sets the UUID of the btrfs file system on an unmounted device, if it has another one.
	SetUUID(ctx context.Context, device string, uuid [uuidSize]byte) error
	// CanResize reports whether the file system on a device is smaller than the device allows. It starts no process.
	CanResize(device, fsType string) (bool, error)
	// Resize resizes a mounted file system to its device. It is never interrupted.
	Resize(device, path, fsType string) error
	// CreateMountPoint creates an empty directory, or an empty file for a block volume, and its missing parent directories. It
	// returns what it created, the deepest path last. If it fails, it removes that.
	CreateMountPoint(path string, file bool) (made []string, err error)
	// Mount mounts a device's file system as mount(8) does.
	Mount(device, target, fsType string, options []string) error
	// Bind bind-mounts source at target; a read-only mount is read-only in every mount namespace that it reaches.
	Bind(source, target string, readOnly bool) error
	// ReadOnly reports whether a block device refuses writes.
	ReadOnly(device string) (bool, error)
	// SetReadOnly makes a block device refuse the writes of all processes that have it open, or accept them again.
	SetReadOnly(device string, readOnly bool) error
	// Unmount removes the topmost mount at a path.
	Unmount(path string) error
	// RemoveMountPoint removes an empty directory or a file. A missing path is no error.
	RemoveMountPoint(path string) error
	// FailedFileSystems lists the devices whose mounted file systems have errors, after which the kernel makes them read-only.
	FailedFileSystems() ([]DeviceNumber, error)
	// ReadAt reads this number of bytes of a device from an offset. It is an error if the device is too small.
	ReadAt(device string, offset int64, bytes int) ([]byte, error)
	// Usage returns the usage of the file system that is mounted at a path.
	Usage(path string) (Usage, error)
	// MountedFileSystems lists the mount points of whole file systems on block devices, by device, the oldest mount first.
	MountedFileSystems() (map[DeviceNumber][]MountedFileSystem, error)
	// UsageOf returns the usage of a mounted file system. fs.ErrNotExist: its path shows another one now.
	UsageOf(m MountedFileSystem) (Usage, error)
	// Trim discards the unused blocks of one range of a mounted file system (FITRIM): the one that begins at an offset, on a
	// device of this size. It returns the number of bytes, and the start of the next range. io.EOF: the file system ends before
	// the offset.
	Trim(m MountedFileSystem, from, device lvm.Bytes) (trimmed, next lvm.Bytes, err error)
	// Sync writes the dirty data of a mounted file system to the disks (syncfs(2)).
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
	Mark    Mark
	Type    string
	Options []string // further arguments of mkfs
	Clear   bool     // the device holds what an interrupted mkfs left
}

// Usage is the usage of a file system (statfs(2)).
type Usage struct {
	Total, Used, Available         lvm.Bytes // Available: to users other than root
	Inodes, InodesUsed, InodesFree int64
}
