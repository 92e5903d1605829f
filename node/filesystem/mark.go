package filesystem

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
)

// An interrupted mkfs (the driver was killed, or the power failed) leaves one of these:
//
//   - xfs: a superblock with sb_inprogress set and a valid checksum, from the first write of metadata to the last, which
//     clears it. No kernel mounts it.
//   - btrfs: a superblock with a temporary magic number, which nothing recognizes as a file system, until the last write.
//   - ext4: nothing in the first 4 KiB until the last write, that of the superblock; but with blocks of less than 4 KiB they
//     also contain the group descriptors, which mkfs writes earlier.
//
// None of these alone proves that the file system was never mounted, except the superblock of xfs: damage leaves the same. The format mark
// proves it (lvm.FormatMark). It also distinguishes the descriptors of ext4 from data of an unknown kind.

// Mark is the format mark of a logical volume.
type Mark struct {
	UUID  string    // of the logical volume
	First lvm.Bytes // its place by the volume's tag; 0: the volume has no tag, and only a mkfs of this driver writes marks
	// Moved: the device is the mapping of an encrypted volume that moved to this node. A mark there names a logical volume on a former node, which the
	// move could not replace. What a mapping shows was written through it, so it is no other volume's.
	Moved bool
}

func (m Mark) places(size lvm.Bytes) []int64 { return lvm.FormatMarkPlaces(m.First, size) }

// findMarks returns the places where a device has the format mark.
func findMarks(device *os.File, mark Mark, size lvm.Bytes) (found []int64, err error) {
	wanted, block := lvm.FormatMark(mark.UUID), make([]byte, lvm.FormatMarkSize)
	for _, at := range mark.places(size) {
		if _, err := device.ReadAt(block, at); err != nil {
			return nil, lvm.Errorf(lvm.KindInternal, "cannot read device %s at byte %d: %w", device.Name(), at, err)
		}
		if bytes.Equal(block, wanted) || mark.Moved && lvm.IsFormatMark(block) {
			found = append(found, at)
		}
	}
	return found, nil
}

// removeMarks zeroes the marks that the device has, and nothing else.
func removeMarks(device *os.File, mark Mark, size lvm.Bytes) error {
	found, err := findMarks(device, mark, size)
	if err != nil {
		return err
	}
	return writeDurably(device, make([]byte, lvm.FormatMarkSize), found...)
}

// xfsInProgress is the offset of the byte in an xfs superblock that mkfs.xfs clears last (sb_inprogress; XFS Algorithms & Data
// Structures, "Superblocks"). The kernel does not mount such a file system while it is set.
const xfsInProgress = 126

// isUnfinishedXFS reports whether a superblock proves that its mkfs.xfs was interrupted (XFS Algorithms & Data Structures,
// "Superblocks"). One without a checksum, from before version 5 of the format, proves nothing.
func isUnfinishedXFS(super []byte) bool {
	const (
		versionAt, sectorAt, inProgressAt, checksumAt = 100, 102, 126, 224
		leastSector                                   = 512
	)
	sector := int(binary.BigEndian.Uint16(super[sectorAt:]))
	if !bytes.HasPrefix(super, []byte("XFSB")) || super[inProgressAt] != 1 || binary.BigEndian.Uint16(super[versionAt:])&0xf != 5 ||
		sector < leastSector || sector > len(super) {
		return false
	}
	checked := slices.Clone(super[:sector])
	clear(checked[checksumAt : checksumAt+4])
	return binary.LittleEndian.Uint32(super[checksumAt:]) == crc32.Checksum(checked, castagnoli)
}

// isUnfinishedExt4 reports whether the head of a marked device is that of an unfinished mkfs.ext4: descriptors, but zeroes in
// the superblock's place and before it.
func isUnfinishedExt4(head []byte) bool {
	const descriptors = 2048
	return isZero(head[:descriptors]) && !isZero(head[descriptors:])
}

// wasMounted reports whether an ext4 was ever mounted: it has a mount time or a mount count (Linux,
// Documentation/filesystems/ext4, "Super Block": s_mtime, s_mnt_count).
func wasMounted(super []byte) bool {
	return !isZero(super[0x2c:0x30]) || !isZero(super[0x34:0x36])
}

func isZero(data []byte) bool { return len(bytes.Trim(data, "\x00")) == 0 }
