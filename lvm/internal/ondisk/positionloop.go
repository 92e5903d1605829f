package ondisk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/internal/dm"
)

// majorLoop is the major number of loop devices (Linux, Documentation/admin-guide/devices.txt).
const majorLoop = 7

// loopStatus is what a loop device is attached to (loop(4), LOOP_GET_STATUS64).
type loopStatus struct {
	device     uint64 // the backing device; 0: a file
	fileSystem uint64 // the device number of the backing file's file system
}

// loop returns the position of a loop device: that of its backing device, or of the file system of its backing file.
func (p Positions) loop(name string, held, depth int) position {
	ask := p.backing
	if ask == nil {
		ask = askLoop
	}
	if held == notOpen {
		f, err := p.open(name)
		if err != nil {
			return positionUnread(err)
		}
		defer func() { _ = unix.Close(f.Fd) }()
		held = f.Fd
	}
	behind, err := ask(held)
	if err != nil {
		return positionUnread(fmt.Errorf("%s: %w", name, err))
	}
	number := behind.device
	if number == 0 {
		number = behind.fileSystem
	}
	if unix.Major(number) == 0 {
		return p.anonymous(name, number)
	}
	folder, err := os.Readlink(filepath.Join(p.Sys, "dev/block", dm.FormatNumber(number)))
	if errors.Is(err, os.ErrNotExist) {
		return positionRemoved(name, dm.FormatNumber(number))
	}
	if err != nil {
		return positionUnread(fmt.Errorf("%s: %w", name, err))
	}
	return p.Walk(filepath.Base(folder), depth+1)
}

// anonymous returns the position of a loop device over a file in a file system without a device number (btrfs, overlay, NFS).
// It is unknown unless the file system is in memory.
func (p Positions) anonymous(name string, number uint64) position {
	mounts, err := dm.ReadMounts(filepath.Join(p.Proc, "self/mountinfo"))
	if err != nil {
		return positionUnread(fmt.Errorf("%s: %w", name, err))
	}
	for _, m := range mounts {
		if m.Number == number && (m.Type == "tmpfs" || m.Type == "devtmpfs") {
			return position{}
		}
	}
	return positionUnknown("%s is a file in a file system without a device number (%s)", name, dm.FormatNumber(number))
}

// open opens a device for an ioctl, and checks that it is the one in sysfs.
func (p Positions) open(name string) (directFile, error) {
	text, err := dm.Attribute(p.Sys, name, "dev")
	if err != nil {
		return directFile{}, err
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(text, "%d:%d", &major, &minor); err != nil {
		return directFile{}, fmt.Errorf("the number of %s is %q: %w", name, text, err)
	}
	f, err := OpenDirect(filepath.Join(p.Dev, name), false)
	if err != nil {
		return f, &os.PathError{Op: "open", Path: filepath.Join(p.Dev, name), Err: err}
	}
	if err := f.IsDevice(unix.Mkdev(major, minor)); err != nil {
		_ = unix.Close(f.Fd)
		return f, err
	}
	return f, nil
}

// askLoop returns the status of an open loop device.
func askLoop(loop int) (loopStatus, error) {
	info, err := unix.IoctlLoopGetStatus64(loop)
	if err != nil {
		return loopStatus{}, err
	}
	return loopStatus{device: info.Rdevice, fileSystem: info.Device}, nil
}
