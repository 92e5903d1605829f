// Package mount works on the mounts and block devices of this machine: the mount table, mount points, bind mounts, and the usage, sync and trim of
// mounted file systems. It identifies devices by number, never by name, and does not access a mounted file system that may be unresponsive,
// except where it is asked to.
package mount

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"

	"github.com/nodelvm/nodelvm/lvm"
)

// Machine acts on the mounts and block devices of this machine. None of its methods decides anything. Its errors are complete sentences for a user.
type Machine struct{ mounter mountutils.Interface }

// New returns this machine.
func New() Machine { return Machine{mountutils.NewWithoutSystemd("")} }

// CreateMountPoint creates an empty directory, or an empty file for a block volume, and its missing parent directories. It returns what it
// created, the deepest path last. If it fails, it removes that.
func (m Machine) CreateMountPoint(path string, file bool) (made []string, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, m.removeAll(made))
			made = nil
		}
	}()
	dirs := path
	if file {
		dirs = filepath.Dir(path)
	}
	var missing []string
	for ; dirs != "/"; dirs = filepath.Dir(dirs) {
		if _, err := os.Lstat(dirs); err == nil {
			break
		} else if !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		missing = append(missing, dirs)
	}
	for _, dir := range slices.Backward(missing) {
		if err := os.Mkdir(dir, 0o750); errors.Is(err, os.ErrExist) { // another process created it meanwhile
			continue
		} else if err != nil {
			return made, describeLink(dir, err)
		}
		made = append(made, dir)
	}
	if !file {
		return made, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o640)
	if err != nil {
		return made, err
	}
	return append(made, path), f.Close()
}

// describeLink explains why a directory could not be created if its parent is a symbolic link to what this container lacks.
func describeLink(dir string, err error) error {
	parent := filepath.Dir(dir)
	if target, noLink := os.Readlink(parent); noLink == nil && errors.Is(err, os.ErrNotExist) {
		return lvm.Errorf(lvm.KindConflict, "cannot create %s: %s is a symbolic link to %s, which the driver's container does not have; replace the link on the node by a directory, and mount --bind %s on it", dir, parent, target, target)
	}
	return err
}

// removeAll removes the created paths, the last first.
func (m Machine) removeAll(made []string) error {
	for _, path := range slices.Backward(made) {
		if err := m.RemoveMountPoint(path); err != nil {
			return err
		}
	}
	return nil
}

// noCanonicalize stops mount(8) from replacing /dev/dm-3 with a name below /dev/mapper, which can be stale: another device's.
const noCanonicalize = "--no-canonicalize"

// Mount mounts a device's file system. If mount(2) fails, Mount runs mount(8), which explains what is wrong. Without the option ro it never
// mounts read-only. mount(8) gets no SELinux label: a kernel without SELinux refuses one, and needs none. lvm.KindInternal: the file system
// may be damaged.
func (m Machine) Mount(source, target, fsType string, options []string) error {
	flags, data := splitFlags(options)
	failed := unix.Mount(source, target, fsType, flags, data)
	if failed == nil {
		return nil
	}
	how := []string{noCanonicalize}
	if flags&unix.MS_RDONLY == 0 {
		how = append(how, "--rw")
	}
	if err := m.mounter.MountSensitiveWithoutSystemdWithMountFlags(source, target, fsType, withoutLabels(options), nil, how); err != nil {
		return lvm.Errorf(kindOfMountError(failed), "cannot mount %s at %s: %s", source, target, oneLine(err.Error()))
	}
	if err := requireLabels(target, options, failed); err != nil {
		return errors.Join(err, m.Unmount(target))
	}
	return nil
}

// kindOfMountError returns lvm.KindConflict if the kernel lacks the file system, or if the device takes no writes or is mounted with another access.
func kindOfMountError(err error) lvm.Kind {
	if slices.Contains([]error{unix.ENODEV, unix.EACCES, unix.EROFS, unix.EBUSY}, err) {
		return lvm.KindConflict
	}
	return lvm.KindInternal
}

func oneLine(text string) string {
	return strings.TrimSuffix(strings.Join(strings.Fields(text), " "), ".")
}

// Unmount removes the topmost mount at a path. If umount(2) fails, Unmount runs umount(8), which explains what is wrong.
func (m Machine) Unmount(path string) error {
	if unix.Unmount(path, unix.UMOUNT_NOFOLLOW) == nil {
		return nil
	}
	if err := m.mounter.Unmount(path); err != nil {
		return lvm.Errorf(lvm.KindInUse, "cannot unmount %s; a process may still have files open there: %s", path, oneLine(err.Error()))
	}
	return nil
}

// RemoveMountPoint removes an empty directory or a file. A missing path is no error.
func (Machine) RemoveMountPoint(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
