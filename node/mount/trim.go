package mount

import (
	"errors"
	"fmt"
	"io"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// fstrimRange is the kernel's struct fstrim_range (include/uapi/linux/fs.h); the kernel stores the trimmed bytes in length.
type fstrimRange struct{ start, length, minimum uint64 }

// xfsGeometry is the kernel's struct xfs_fsop_geom_v1 (fs/xfs/libxfs/xfs_fs.h); only its beginning matters here.
type xfsGeometry struct {
	blockSize, rtExtentSize, groupBlocks, groups uint32
	rest                                         [96]byte
}

// Requests of ioctl(2), and the length of a range for file systems that accept any.
const (
	fitrim       = 0xc0185879 // FITRIM, _IOWR('X', 121, struct fstrim_range)
	xfsGeometryV = 0x80705864 // XFS_IOC_FSGEOMETRY_V1, _IOR('X', 100, struct xfs_fsop_geom_v1)
	trimRange    = lvm.GiB
)

// Trim discards the unused blocks of one range of a mounted file system (FITRIM): the one that begins at an offset, on a device of this size.
// It returns the number of bytes, and the start of the next range. io.EOF: the file system ends before the offset.
func (Machine) Trim(m FileSystem, from, device lvm.Bytes) (trimmed, next lvm.Bytes, err error) {
	fd, err := openMount(m)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	length, err := trimLength(fd, m.Type, device)
	if err != nil {
		return 0, 0, fmt.Errorf("cannot read the geometry of the file system at %s: %w", m.Path, err)
	}
	r := fstrimRange{start: uint64(from), length: uint64(length)} //nolint:gosec // neither is negative
	switch err := control(fd, fitrim, unsafe.Pointer(&r)); {
	case err == nil:
		return lvm.Bytes(r.length), from + length, nil //nolint:gosec // at most the file system's size
	case errors.Is(err, unix.EINVAL) && from > 0:
		return 0, 0, io.EOF // the file system is smaller than its device
	case errors.Is(err, unix.EOPNOTSUPP):
		return 0, 0, errors.New("the volume's disks do not support discard, or its encryption passes none: remove the trim interval from the storage class or the claim")
	default:
		return 0, 0, fmt.Errorf("cannot trim the file system at %s: %w", m.Path, err)
	}
}

// trimLength returns the length of a range. xfs discards each free extent that a range touches as a whole. So a range is an
// allocation group: with shorter ranges xfs would discard large extents again. btrfs trims all devices, whatever the range.
func trimLength(fd int, fsType string, device lvm.Bytes) (lvm.Bytes, error) {
	switch fsType {
	case "xfs":
		var geometry xfsGeometry
		if err := control(fd, xfsGeometryV, unsafe.Pointer(&geometry)); err != nil {
			return 0, err
		}
		return lvm.Bytes(geometry.groupBlocks) * lvm.Bytes(geometry.blockSize), nil
	case "btrfs":
		return device, nil
	}
	return trimRange, nil
}

func control(fd int, request uintptr, argument unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}
