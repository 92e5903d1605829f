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
	behind, err := p.behind(name, held)
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

// behind returns what a loop device is attached to. held is its descriptor, or notOpen.
func (p Positions) behind(name string, held int) (loopStatus, error) {
	if held == notOpen {
		f, err := p.open(name)
		if err != nil {
			return loopStatus{}, err
		}
		defer func() { _ = unix.Close(f.Fd) }()
		held = f.Fd
	}
	if p.backing != nil {
		return p.backing(held)
	}
	return askLoop(held)
}

// eachLoop calls do for each loop device that is attached to a block device, with that device's name.
func (p Positions) eachLoop(do func(loop, device string)) error {
	attached, err := filepath.Glob(filepath.Join(p.Sys, "class/block/loop*/loop/backing_file"))
	if err != nil {
		return err
	}
	for _, file := range attached {
		loop := filepath.Base(filepath.Dir(filepath.Dir(file)))
		behind, err := p.behind(loop, notOpen)
		if errors.Is(err, unix.ENXIO) || dm.IsVanished(err) {
			continue // it was detached
		}
		if err != nil {
			return fmt.Errorf("cannot read what the loop device %s is attached to: %w", loop, err)
		}
		if name := p.nameOf(behind.device); name != "" {
			do(loop, name)
		}
	}
	return nil
}

// nameOf returns the name of the block device with a number; "": there is none.
func (p Positions) nameOf(number uint64) string {
	folder, err := os.Readlink(filepath.Join(p.Sys, "dev/block", dm.FormatNumber(number)))
	if err != nil || number == 0 {
		return ""
	}
	return filepath.Base(folder)
}

// eachBelow calls do for each device that the named one is made of: the disk of a partition, the legs of a RAID, and so on.
func (p Positions) eachBelow(name string, depth int, do func(string)) {
	parts, _ := dm.ReadNames(p.path(name, "slaves")) // a disk has none
	if whole, err := p.whole(name); err == nil && whole != "" {
		parts = append(parts, whole)
	}
	for _, part := range parts {
		if do(part); depth < maxStack {
			p.eachBelow(part, depth+1, do)
		}
	}
}

// askLoop returns the status of an open loop device.
func askLoop(loop int) (loopStatus, error) {
	info, err := unix.IoctlLoopGetStatus64(loop)
	if err != nil {
		return loopStatus{}, err
	}
	return loopStatus{device: info.Rdevice, fileSystem: info.Device}, nil
}
