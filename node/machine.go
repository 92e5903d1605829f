package node

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/filesystem"
	"github.com/nodelvm/nodelvm/node/mount"
)

// Tools is what this service needs of package filesystem; filesystem.Tools implements it.
type Tools interface {
	Probe(ctx context.Context, device string, mark filesystem.Mark) (filesystem.Content, error)
	Format(ctx context.Context, f filesystem.Formatting) error
	RemoveMark(device string, mark filesystem.Mark) error
	WriteMark(device string, mark filesystem.Mark) error
	Fsck(ctx context.Context, device, fsType string) error
	SetUUID(ctx context.Context, device, lvUUID string) error
	CanResize(device, fsType string) (bool, error)
	Resize(device, path, fsType string) error
}

// Mounts, MountedFileSystems and BlockDevices are what this service needs of package mount; mount.Machine implements them.
type Mounts interface {
	Inspect(path string) (mount.PathInfo, error)
	Mounts(device string) ([]mount.Point, error)
	AllMounts() (map[mount.DeviceNumber][]mount.Point, error)
	RawDevices() ([]mount.DeviceNumber, error)
	CreateMountPoint(path string, file bool) (made []string, err error)
	Mount(device, target, fsType string, options []string) error
	Bind(source, target string, readOnly bool) error
	Unmount(path string) error
	RemoveMountPoint(path string) error
}

// MountedFileSystems is about file systems that are mounted: see Mounts.
type MountedFileSystems interface {
	FileSystems() (map[mount.DeviceNumber][]mount.FileSystem, error)
	Failed() ([]mount.DeviceNumber, error)
	UsageOf(f mount.FileSystem) (mount.Usage, error)
	Trim(f mount.FileSystem, from, device lvm.Bytes) (trimmed, next lvm.Bytes, err error)
	Sync(f mount.FileSystem) error
}

// BlockDevices is about devices: see Mounts.
type BlockDevices interface {
	Stat(device string) (mount.BlockDevice, error)
	OpenDevice(device string) (block mount.BlockDevice, release func(), err error)
	ReadOnly(device string) (bool, error)
	SetReadOnly(device string, readOnly bool) error
	ReadAt(device string, offset int64, bytes int) ([]byte, error)
	SyncDevice(device string) error
}
