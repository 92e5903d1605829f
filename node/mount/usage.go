package mount

import (
	"cmp"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// Usage is the usage of a file system (statfs(2)).
type Usage struct {
	Total, Used, Available         lvm.Bytes // Available: to users other than root
	Inodes, InodesUsed, InodesFree int64
}

// UsageOf returns the usage of a mounted file system. fs.ErrNotExist: its path shows another one now. It compares the mount's ID: after an
// unmount, or below another mount, the path shows another file system.
func (Machine) UsageOf(m FileSystem) (Usage, error) {
	fd, err := unix.Open(m.Path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return Usage{}, fmt.Errorf("cannot open %s: %w", m.Path, err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	if _, id, err := unix.NameToHandleAt(fd, "", unix.AT_EMPTY_PATH); err != nil || id != m.ID {
		return Usage{}, fmt.Errorf("another file system is mounted at %s: %w", m.Path, cmp.Or(err, fs.ErrNotExist))
	}
	var s unix.Statfs_t
	if err := unix.Fstatfs(fd, &s); err != nil {
		return Usage{}, fmt.Errorf("cannot read the usage of the file system at %s: %w", m.Path, err)
	}
	return usageOf(s), nil
}

func usageOf(s unix.Statfs_t) Usage {
	block := lvm.Bytes(s.Frsize)
	return Usage{
		Total:      lvm.Bytes(s.Blocks) * block, //nolint:gosec // statfs counts what fits a disk
		Used:       lvm.Bytes(s.Blocks-s.Bfree) * block,
		Available:  lvm.Bytes(s.Bavail) * block,
		Inodes:     int64(s.Files),
		InodesUsed: int64(s.Files - s.Ffree),
		InodesFree: int64(s.Ffree),
	}
}

// Sync writes the dirty data of a mounted file system to the disks (syncfs(2)).
func (Machine) Sync(m FileSystem) error {
	fd, err := openMount(m)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written through it
	if err := unix.Syncfs(fd); err != nil {
		return fmt.Errorf("cannot write the data of the file system at %s: %w", m.Path, err)
	}
	return nil
}

// openMount opens the root directory of a mount. lvm.KindBusy: another mount covers it now.
func openMount(m FileSystem) (fd int, err error) {
	fd, err = unix.Open(m.Path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("cannot open %s: %w", m.Path, err)
	}
	if _, id, err := unix.NameToHandleAt(fd, "", unix.AT_EMPTY_PATH); err != nil || id != m.ID {
		_ = unix.Close(fd)
		return -1, lvm.Errorf(lvm.KindBusy, "another file system is mounted at %s now; retry", m.Path)
	}
	return fd, nil
}
