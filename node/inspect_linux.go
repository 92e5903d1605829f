package node

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"k8s.io/mount-utils"
	"k8s.io/utils/exec"

	"github.com/nodelvm/nodelvm/lvm"
)

// machine is the real Filesystem.
type machine struct {
	mounter mount.Interface
	exec    exec.Interface
}

func newMachine() machine {
	return machine{mounter: mount.NewWithoutSystemd(""), exec: exec.New()}
}

func (machine) Inspect(path string) (PathInfo, error) {
	p := PathInfo{Path: path}
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, os.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return p, fmt.Errorf("cannot inspect %s: %w", path, err)
	}
	p.Path = filepath.Join(parent, filepath.Base(path))
	mounts, err := mountsWhere(func(m *mountinfo.Info) bool { return m.Mountpoint == p.Path })
	if err != nil {
		return p, err
	}
	if len(mounts) > 0 {
		top := mounts[len(mounts)-1]
		p.Mount = &Mount{
			Device:   numberOf(top),
			FSType:   top.FSType,
			Source:   top.Source,
			ReadOnly: hasOption(top.Options, "ro"),
		}
		if top.Root == "/" {
			return p, nil // a whole file system may be unresponsive; a bound file or device has another root
		}
	}
	p.Kind, p.Device, err = kindOf(p.Path)
	return p, err
}

// OpenDevice checks that the path is the kernel's name of the device: a node in /dev can be stale.
func (m machine) OpenDevice(device string) (BlockDevice, func(), error) {
	f, err := os.Open(device)
	if err != nil {
		return BlockDevice{}, nil, lvm.Errorf(lvm.KindInternal, "cannot open device %s: %w", device, err)
	}
	release := func() { _ = f.Close() }
	block, err := m.Stat(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err == nil {
		err = namedByKernel(device, block.Number)
	}
	if err != nil {
		release()
		return block, nil, err
	}
	return block, release, nil
}

func namedByKernel(device string, number DeviceNumber) error {
	link := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(uint64(number)), unix.Minor(uint64(number)))
	name, err := os.Readlink(link)
	if err != nil {
		return fmt.Errorf("device %s is gone: %w", device, err)
	}
	if filepath.Base(name) != filepath.Base(device) {
		return lvm.Errorf(lvm.KindInternal, "the device node %s is stale, because it leads to the device that the kernel names %s. Remove it (rm %s), and udev or the driver creates it again. The driver has changed nothing", device, filepath.Base(name), device)
	}
	return nil
}

func kindOf(path string) (PathKind, DeviceNumber, error) {
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); errors.Is(err, unix.ENOENT) {
		return PathAbsent, 0, nil
	} else if err != nil {
		return PathAbsent, 0, fmt.Errorf("cannot inspect %s: %w", path, err)
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		dir, err := os.Open(path)
		if err != nil {
			return PathEmptyDir, 0, err
		}
		defer func() { _ = dir.Close() }()
		if _, err = dir.Readdirnames(1); errors.Is(err, io.EOF) {
			return PathEmptyDir, 0, nil
		}
		return PathNonEmptyDir, 0, err
	case unix.S_IFREG:
		if stat.Size == 0 {
			return PathEmptyFile, 0, nil
		}
		return PathNonEmptyFile, 0, nil
	case unix.S_IFBLK:
		return PathDevice, DeviceNumber(stat.Rdev), nil
	}
	return PathOther, 0, nil
}

func (machine) Stat(device string) (BlockDevice, error) {
	var stat unix.Stat_t
	if err := unix.Stat(device, &stat); err != nil {
		return BlockDevice{}, fmt.Errorf("cannot inspect device %s: %w", device, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return BlockDevice{}, fmt.Errorf("%s is not a block device", device)
	}
	path := fmt.Sprintf("/sys/dev/block/%d:%d/size", unix.Major(stat.Rdev), unix.Minor(stat.Rdev))
	text, err := os.ReadFile(path)
	if err != nil {
		return BlockDevice{}, fmt.Errorf("cannot read the size of %s: %w", device, err)
	}
	sectors, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return BlockDevice{}, fmt.Errorf("%s: %w", path, err)
	}
	return BlockDevice{Number: DeviceNumber(stat.Rdev), Size: lvm.Bytes(sectors) * 512}, nil // sysfs counts 512-byte sectors, whatever the disk's are
}
