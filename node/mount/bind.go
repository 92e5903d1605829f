package mount

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// Bind bind-mounts source at target; a read-only mount is read-only in every mount namespace that it reaches: Bind makes it read-only before
// it attaches it at the target. The kernel propagates a new mount to other mount namespaces, such as the host's, but not a later remount
// (Linux, Documentation/filesystems/sharedsubtree.rst).
func (Machine) Bind(source, target string, readOnly bool) (err error) {
	if readOnly {
		if err = bindReadOnly(source, target); errors.Is(err, unix.ENOSYS) {
			err = BindReadOnlyBeforeLinux512(source, target)
		}
	} else {
		err = bind(source, target)
	}
	if err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot bind-mount %s to %s: %w", source, target, err)
	}
	return nil
}

func bind(source, target string) error { return unix.Mount(source, target, "", unix.MS_BIND, "") }

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

// BindReadOnlyBeforeLinux512 is Bind on a kernel without mount_setattr(2): it binds to a private path, which other namespaces do not see, and
// from there to the target: a bind mount has the flags of the mount that it is made from.
func BindReadOnlyBeforeLinux512(source, target string) (err error) {
	dir, err := os.MkdirTemp("", "nodelvm-bind-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	private := filepath.Join(dir, "source")
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
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
