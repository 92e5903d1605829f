package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

func (machine) Make(path string, file bool) error {
	dir := path
	if file {
		dir = filepath.Dir(path)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil || !file {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}

// asNamed keeps mount(8) from turning /dev/dm-3 into a name below /dev/mapper, which can be stale and be another device.
var asNamed = []string{"--no-canonicalize"}

func (m machine) Mount(source, target, fsType string, options []string) error {
	if err := m.mounter.MountSensitiveWithoutSystemdWithMountFlags(source, target, fsType, options, nil, asNamed); err != nil {
		return lvm.Errorf(lvm.KindInternal, "%s could not be mounted at %s: %s", source, target, oneLine([]byte(err.Error())))
	}
	return nil
}

func (m machine) Unmount(path string) error {
	if err := m.mounter.Unmount(path); err != nil {
		return lvm.Errorf(lvm.KindInUse, "%s could not be unmounted; something may still have files open there: %s", path, oneLine([]byte(err.Error())))
	}
	return nil
}

func (machine) Remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (machine) Usage(path string) (Usage, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return Usage{}, fmt.Errorf("how full %s is cannot be read: %w", path, err)
	}
	block := lvm.Bytes(s.Frsize)
	return Usage{
		Total:      lvm.Bytes(s.Blocks) * block, //nolint:gosec // statfs counts what fits a disk
		Used:       lvm.Bytes(s.Blocks-s.Bfree) * block,
		Available:  lvm.Bytes(s.Bavail) * block,
		Inodes:     int64(s.Files),
		InodesUsed: int64(s.Files - s.Ffree),
		InodesFree: int64(s.Ffree),
	}, nil
}
