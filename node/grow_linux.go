package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// CanGrow reads the superblock past the mount. Of a mounted xfs it may be older than the last growth, and Grow then has
// nothing to do; it is never newer.
func (m machine) CanGrow(device, fsType string) (bool, error) {
	at, known := superblocks[fsType]
	if !known {
		return false, nil
	}
	block, err := m.Stat(device)
	if err != nil {
		return false, err
	}
	super, err := readAt(device, at)
	if err != nil {
		return false, err
	}
	return canGrow(fsType, super, block.Size), nil
}

// Grow runs the tool of the file system that is mounted, without asking what is on the device first.
func (m machine) Grow(device, path, fsType string) error {
	argv := map[string][]string{
		"ext4":  {"resize2fs", device},
		"xfs":   {"xfs_growfs", "-d", path},
		"btrfs": {"btrfs", "filesystem", "resize", "max", path},
	}[fsType]
	if argv == nil {
		return lvm.Errorf(lvm.KindInternal, "a file system of type %q is not known to grow", fsType)
	}
	if out, err := m.command(m.exec.Command(argv[0], argv[1:]...)); err != nil {
		return lvm.Errorf(lvm.KindInternal, "the volume has grown, but not yet the file system on it; it is tried again when the volume is staged or expanded: %s: %w: %s",
			strings.Join(argv, " "), err, oneLine(out))
	}
	return nil
}

// Renew writes one block, the first superblock: it is the only one that a mount reads, and the first commit after that
// writes all the others.
func (m machine) Renew(ctx context.Context, device string, uuid [uuidSize]byte) error {
	super, err := readAt(device, superblocks["btrfs"])
	if err != nil {
		return err
	}
	changed, err := withUUID(super, uuid)
	if err != nil || changed == nil {
		return err
	}
	if err := waitUnused(ctx, device); err != nil {
		return err
	}
	f, err := os.OpenFile(device, os.O_WRONLY|unix.O_EXCL|unix.O_SYNC, 0)
	if err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot give the clone a new file system UUID: %w", err)
	}
	_, err = f.WriteAt(changed, superblocks["btrfs"])
	if err := errors.Join(err, f.Close()); err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot give the clone a new file system UUID: %w", err)
	}
	return nil
}

// Failed finds the mounts that are for writing on a file system that is not any more; a mount that was asked for read-only
// is so itself (proc_pid_mountinfo(5), fields 6 and 11). Of ext4 not every kernel shows it there, but each counts the
// errors (Linux, Documentation/ABI/testing/sysfs-fs-ext4), from zero after the check that comes before a mount.
func (machine) Failed() ([]DeviceNumber, error) {
	failed, err := mountsWhere(func(m *mountinfo.Info) bool {
		if !strings.HasPrefix(m.Source, "/dev/") || !hasOption(m.Options, "rw") {
			return false
		}
		return hasOption(m.VFSOptions, "ro") || hasOption(m.VFSOptions, "emergency_ro") || hasOption(m.VFSOptions, "shutdown") ||
			m.FSType == "ext4" && countsErrors(m)
	})
	numbers := make([]DeviceNumber, 0, len(failed))
	for _, m := range failed {
		numbers = append(numbers, numberOf(m))
	}
	return numbers, err
}

func countsErrors(m *mountinfo.Info) bool {
	device, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", m.Major, m.Minor))
	if err != nil {
		return false // it is on its way out
	}
	count, err := os.ReadFile(filepath.Join("/sys/fs/ext4", filepath.Base(device), "errors_count"))
	return err == nil && strings.TrimSpace(string(count)) != "0"
}
