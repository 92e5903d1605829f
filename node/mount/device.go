package mount

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
)

// DeviceNumber is a block device's number (dev_t). The driver compares mounts and devices by it, never by name.
type DeviceNumber uint64

// BlockDevice is a block device's number and size.
type BlockDevice struct {
	Number DeviceNumber
	Size   lvm.Bytes
}

// Stat returns number and size of the block device at a path. It is an error if the path has none.
func (Machine) Stat(device string) (BlockDevice, error) {
	var stat unix.Stat_t
	if err := unix.Stat(device, &stat); err != nil {
		return BlockDevice{}, fmt.Errorf("cannot inspect device %s: %w", device, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return BlockDevice{}, fmt.Errorf("%s is not a block device", device)
	}
	path := "/sys/dev/block/" + dm.FormatNumber(stat.Rdev) + "/size"
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

// OpenDevice opens a block device until release is called: until then the kernel gives its number to no other device. It checks that the
// path is the kernel's name of the device: a node in /dev can be stale.
func (m Machine) OpenDevice(device string) (BlockDevice, func(), error) {
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
	name, err := os.Readlink("/sys/dev/block/" + dm.FormatNumber(uint64(number)))
	if err != nil {
		return fmt.Errorf("device %s is gone: %w", device, err)
	}
	if filepath.Base(name) != filepath.Base(device) {
		return lvm.Errorf(lvm.KindInternal, "the device node %s is stale, because it leads to the device that the kernel names %s. Remove it (rm %s), and udev or the driver creates it again. The driver has changed nothing", device, filepath.Base(name), device)
	}
	return nil
}

// ReadOnly reports whether a block device refuses writes.
func (Machine) ReadOnly(device string) (bool, error) {
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

// SetReadOnly makes a block device refuse the writes of all processes that have it open, or accept them again.
func (Machine) SetReadOnly(device string, readOnly bool) error {
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

// SyncDevice writes the cached data of a device to its disks (fsync(2)).
func (Machine) SyncDevice(device string) error {
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nothing was written through it
	if err := f.Sync(); err != nil {
		return fmt.Errorf("cannot write the cached data of %s: %w", device, err)
	}
	return nil
}

// ReadAt reads this number of bytes of a device from an offset. It is an error if the device is too small.
func (m Machine) ReadAt(device string, offset int64, bytes int) ([]byte, error) {
	f, err := os.Open(device)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data := make([]byte, bytes)
	if _, err := f.ReadAt(data, offset); err != nil {
		return nil, fmt.Errorf("cannot read %d bytes of %s from %d: %w", bytes, device, offset, err)
	}
	return data, nil
}
