package node

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"k8s.io/utils/io"

	"github.com/nodelvm/nodelvm/lvm"
)

const mountTable = "/proc/self/mountinfo"

// wholeMountTable is the first kernel that shows all mounts to a reader while others are mounted and unmounted (Linux
// 9f6c61f96f2d, "proc/mounts: add cursor"). On older kernels lines can be missing.
var wholeMountTable = kernelVersion{5, 8}

func mountsWhere(wanted func(*mountinfo.Info) bool) ([]*mountinfo.Info, error) {
	mounts, err := readMountTable(mountTable, runningKernel(), func(m *mountinfo.Info) (skip, stop bool) { return !wanted(m), false })
	if err != nil {
		return nil, fmt.Errorf("cannot read the mount table of this node: %w", err)
	}
	return mounts, nil
}

// readMountTable reads the table again on a kernel that may omit lines, until two reads are equal.
func readMountTable(path string, kernel kernelVersion, filter mountinfo.FilterFunc) ([]*mountinfo.Info, error) {
	const attempts = 20
	if !kernel.before(wholeMountTable) {
		return mountinfo.GetMounts(filter)
	}
	table, err := io.ConsistentRead(path, attempts)
	if err != nil {
		return nil, err
	}
	return mountinfo.GetMountsFromReader(bytes.NewReader(table), filter)
}

// numberOf returns the number of a mount's device. A btrfs has an anonymous number in the table, and its device as the source.
func numberOf(m *mountinfo.Info) DeviceNumber {
	var stat unix.Stat_t
	if m.FSType == "btrfs" && unix.Stat(m.Source, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFBLK {
		return DeviceNumber(stat.Rdev)
	}
	return DeviceNumber(unix.Mkdev(uint32(m.Major), uint32(m.Minor))) //nolint:gosec // the kernel's own numbers
}

func (m machine) Mounts(device string) ([]MountPoint, error) {
	block, err := m.Stat(device)
	if err != nil {
		return nil, err
	}
	mounts, err := mountsWhere(func(m *mountinfo.Info) bool {
		if m.Root == "/" { // other roots are parts of the file system, as the kubelet binds for subPath
			return numberOf(m) == block.Number
		}
		number, raw := boundDevice(m)
		return raw && number == block.Number
	})
	points := make([]MountPoint, 0, len(mounts))
	for _, m := range mounts {
		points = append(points, MountPoint{Path: m.Mountpoint, ReadOnly: hasOption(m.Options, "ro")})
	}
	return points, err
}

func (machine) MountedFileSystems() (map[DeviceNumber][]MountedFileSystem, error) {
	mounts, err := mountsWhere(func(m *mountinfo.Info) bool { return m.Root == "/" && strings.HasPrefix(m.Source, "/dev/") })
	all := map[DeviceNumber][]MountedFileSystem{}
	for _, m := range mounts {
		number := numberOf(m)
		all[number] = append(all[number], MountedFileSystem{ID: m.ID, Path: m.Mountpoint, Type: m.FSType,
			ReadOnly: hasOption(m.Options, "ro") || hasOption(m.VFSOptions, "ro")})
	}
	return all, err
}

func (m machine) RawDevices() ([]DeviceNumber, error) {
	var numbers []DeviceNumber
	_, err := mountsWhere(func(m *mountinfo.Info) bool {
		if m.Root == "/" {
			return false
		}
		if number, raw := boundDevice(m); raw {
			numbers = append(numbers, number)
		}
		return false
	})
	slices.Sort(numbers)
	return slices.Compact(numbers), err
}

// boundDevice returns the number of a bound device node; raw is false if the mount shows something else.
func boundDevice(m *mountinfo.Info) (number DeviceNumber, raw bool) {
	if m.FSType != "devtmpfs" && m.FSType != "tmpfs" { // sources of device nodes
		return 0, false
	}
	kind, number, err := kindOf(m.Mountpoint)
	return number, err == nil && kind == PathDevice
}

func hasOption(options, option string) bool {
	for o := range strings.SplitSeq(options, ",") {
		if o == option {
			return true
		}
	}
	return false
}

// FailedFileSystems finds the writable mounts of a file system that has become read-only. A mount that was requested read-only
// is read-only itself (proc_pid_mountinfo(5), fields 6 and 11). Not every kernel shows this for ext4, but each counts its
// errors (Linux, Documentation/ABI/testing/sysfs-fs-ext4), from zero after the check before a mount.
func (machine) FailedFileSystems() ([]DeviceNumber, error) {
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
		return false // it is being unmounted
	}
	count, err := os.ReadFile(filepath.Join("/sys/fs/ext4", filepath.Base(device), "errors_count"))
	return err == nil && strings.TrimSpace(string(count)) != "0"
}

func (machine) Sync(m MountedFileSystem) error {
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
func openMount(m MountedFileSystem) (fd int, err error) {
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
