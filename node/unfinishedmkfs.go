package node

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
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
// So only ext4 needs a mark that distinguishes these descriptors from data of an unknown kind. mke2fs clears the first 4 KiB
// and up to 128 KiB at the end; the mark lies before these, where a new file system has free space. The driver writes it before
// mkfs, and removes it, durably, before the first mount: a device with the mark of this logical volume was never mounted since.
// A clone has another UUID, and the driver ignores the mark of another volume.

// The mark of mkfs.
const (
	markSize  = 4096
	markSpare = 128 << 10 // at the end, which mke2fs clears
	markMagic = "nodelvm: mkfs.ext4 of this logical volume has not ended\n"
)

// mkfsMark returns the mark for a logical volume.
func mkfsMark(uuid string) []byte {
	mark := make([]byte, markSize)
	copy(mark, markMagic+uuid)
	binary.LittleEndian.PutUint32(mark[markSize-4:], crc32.Checksum(mark[:markSize-4], castagnoli))
	return mark
}

// markOffset returns the offset of the mark on a device; negative if the device is too small for one.
func markOffset(size lvm.Bytes) int64 {
	return int64(size-markSpare)/markSize*markSize - markSize
}

// needsMark reports whether the first 4 KiB of the new file system hold more than the superblock.
func needsMark(fsType string, options []string, size lvm.Bytes) bool {
	const smallest = 512 * lvm.MiB // mke2fs.conf(5), "small": below it the blocks have 1 KiB
	if fsType != "ext4" || markOffset(size) < headSize {
		return false
	}
	if at := slices.Index(options, "-b"); at >= 0 {
		return options[at+1] != "4096"
	}
	return size < smallest || slices.Contains(options, "-T")
}

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
