package node

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

func (m machine) CreateMountPoint(path string, file bool) (made []string, err error) {
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
func (m machine) removeAll(made []string) error {
	for _, path := range slices.Backward(made) {
		if err := m.RemoveMountPoint(path); err != nil {
			return err
		}
	}
	return nil
}

// noCanonicalize stops mount(8) from replacing /dev/dm-3 with a name below /dev/mapper, which can be stale: another device's.
var noCanonicalize = []string{"--no-canonicalize"}

func (m machine) Mount(source, target, fsType string, options []string) error {
	if err := m.mounter.MountSensitiveWithoutSystemdWithMountFlags(source, target, fsType, options, nil, noCanonicalize); err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot mount %s at %s: %s", source, target, oneLine(err.Error()))
	}
	if err := requireContext(target, options); err != nil {
		return errors.Join(err, m.Unmount(target))
	}
	return nil
}

func oneLine(text string) string {
	return strings.TrimSuffix(strings.Join(strings.Fields(text), " "), ".")
}

// requireContext returns an error (lvm.KindConflict) if a mount lacks an SELinux label among its options.
func requireContext(target string, options []string) error {
	if !slices.ContainsFunc(options, func(o string) bool { return strings.Contains(o, "context=") }) {
		return nil
	}
	mounts, err := mountsWhere(func(m *mountinfo.Info) bool { return m.Mountpoint == target })
	if err != nil || len(mounts) == 0 {
		return err
	}
	if dropped := droppedContext(options, mounts[len(mounts)-1].VFSOptions); dropped != "" {
		return lvm.Errorf(lvm.KindConflict, "cannot mount a file system at %s with the SELinux label %s: the driver's mount command does not see "+
			"SELinux; set seLinuxMount in the driver's chart, which mounts the host's /etc/selinux and /sys/fs/selinux", target, dropped)
	}
	return nil
}

func (m machine) Unmount(path string) error {
	if err := m.mounter.Unmount(path); err != nil {
		return lvm.Errorf(lvm.KindInUse, "cannot unmount %s; a process may still have files open there: %s", path, oneLine(err.Error()))
	}
	return nil
}

func (machine) RemoveMountPoint(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Bind makes a read-only mount read-only before it attaches it at the target. The kernel propagates a new mount to other mount
// namespaces, such as the host's, but not a later remount (Linux, Documentation/filesystems/sharedsubtree.rst).
func (machine) Bind(source, target string, readOnly bool) error {
	bind := func(from, to string) error { return unix.Mount(from, to, "", unix.MS_BIND, "") }
	var err error
	if readOnly {
		if err = bindReadOnly(source, target); errors.Is(err, unix.ENOSYS) {
			err = bindReadOnlyBeforeLinux512(source, target, bind)
		}
	} else {
		err = bind(source, target)
	}
	if err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot bind-mount %s to %s: %w", source, target, err)
	}
	return nil
}

// bindReadOnly needs mount_setattr(2) of Linux 5.12.
func bindReadOnly(source, target string) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(tree) }()
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return err
	}
	return unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// bindReadOnlyBeforeLinux512 binds to a private path, which other namespaces do not see, and from there to the target: a bind
// mount has the flags of the mount that it is made from.
func bindReadOnlyBeforeLinux512(source, target string, bind func(from, to string) error) (err error) {
	dir, err := os.MkdirTemp("", "nodelvm-bind-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	private := filepath.Join(dir, "source")
	var stat unix.Stat_t
	if err := unix.Stat(source, &stat); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = os.Mkdir(private, 0o700)
	} else {
		err = os.WriteFile(private, nil, 0o600)
	}
	if err != nil {
		return err
	}
	if err := bind(source, private); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Unmount(private, unix.MNT_DETACH)) }()
	if err := remountReadOnly(private); err != nil {
		return err
	}
	return bind(private, target)
}

// remountReadOnly keeps the mount's other flags, which a remount would clear (mount(2), "Remounting an existing mount").
func remountReadOnly(path string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return err
	}
	flags := uintptr(unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY)
	for _, kept := range []struct{ has, flag uintptr }{
		{unix.ST_NOSUID, unix.MS_NOSUID}, {unix.ST_NODEV, unix.MS_NODEV}, {unix.ST_NOEXEC, unix.MS_NOEXEC},
		{unix.ST_NOATIME, unix.MS_NOATIME}, {unix.ST_NODIRATIME, unix.MS_NODIRATIME}, {unix.ST_RELATIME, unix.MS_RELATIME},
	} {
		if uintptr(s.Flags)&kept.has != 0 { //nolint:gosec // a set of bits
			flags |= kept.flag
		}
	}
	return unix.Mount("", path, "", flags, "")
}

// ReadOnly and SetReadOnly use BLKROGET and BLKROSET of include/uapi/linux/fs.h.
func (machine) ReadOnly(device string) (bool, error) {
	f, err := os.Open(device)
	if err != nil {
		return false, fmt.Errorf("cannot read whether %s is read-only: %w", device, err)
	}
	defer func() { _ = f.Close() }()
	readOnly, err := unix.IoctlGetInt(int(f.Fd()), unix.BLKROGET)
	if err != nil {
		return false, fmt.Errorf("cannot read whether %s is read-only: %w", device, err)
	}
	return readOnly != 0, nil
}

func (machine) SetReadOnly(device string, readOnly bool) error {
	f, err := os.Open(device)
	if err != nil {
		return fmt.Errorf("cannot open device %s: %w", device, err)
	}
	defer func() { _ = f.Close() }()
	value := 0
	if readOnly {
		value = 1
	}
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.BLKROSET, value); err != nil {
		return fmt.Errorf("cannot set the read-only flag of %s to %t: %w", device, readOnly, err)
	}
	return nil
}

func (machine) Usage(path string) (Usage, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return Usage{}, fmt.Errorf("cannot read the usage of the file system at %s: %w", path, err)
	}
	return usageOf(s), nil
}

// UsageOf compares the mount's ID: after an unmount, or below another mount, the path shows another file system.
func (machine) UsageOf(m MountedFileSystem) (Usage, error) {
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
