package dm

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// RemoveNamesOf implements lvm.Kernel. A name that does not exist costs one system call.
func (k Kernel) RemoveNamesOf(group lvm.VGName, lv string, hidden []string) (removed []string, err error) {
	volume := MapperName(group, lv)
	remove := func(path, wanted string) bool {
		stale, failure := k.isStale(path, wanted)
		if failure == nil && stale {
			failure = os.Remove(path)
		}
		if errors.Is(failure, fs.ErrNotExist) {
			return false
		}
		err = errors.Join(err, failure)
		if stale = stale && failure == nil; stale {
			removed = append(removed, path)
		}
		return stale
	}
	for _, name := range append([]string{volume}, hidden...) {
		remove(filepath.Join(k.Dev, "mapper", name), name)
	}
	if dir := filepath.Join(k.Dev, string(group)); remove(filepath.Join(dir, lv), volume) {
		_ = unix.Rmdir(dir) // fails unless empty; vgrename refuses to use the name while the folder exists
	}
	return removed, err
}

// isStale reports whether a name that an lvm without udev created leads to no device, or to another device than that with the
// device-mapper name wanted. Such a name is a device node in /dev/mapper, or a link to one. udev's names lead to the device itself.
func (k Kernel) isStale(path, wanted string) (bool, error) {
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		return false, err
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFBLK:
		_, name, err := k.Mapping(stat.Rdev)
		if errors.Is(err, fs.ErrNotExist) {
			return true, nil
		}
		return name != "" && name != wanted, err
	case unix.S_IFLNK:
		node := filepath.Join(k.Dev, "mapper", wanted)
		link, err := os.Readlink(path)
		if err == nil && link == node {
			_, err = os.Lstat(node)
			if errors.Is(err, fs.ErrNotExist) {
				return true, nil
			}
		}
		return false, err
	}
	return false, nil
}
