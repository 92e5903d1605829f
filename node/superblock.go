package node

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/nodelvm/nodelvm/lvm"
)

// superblocks has the offset of each file system's superblock; headSize bytes from there include all needed fields.
var superblocks = map[string]int64{"ext4": 1024, "xfs": 0, "btrfs": 64 << 10}

// readSuperblocks reads all places of a device where libblkid searches for a superblock, and btrfs's copy at 64 MiB. It ignores
// their content, and returns the first read error.
func readSuperblocks(device io.ReaderAt, size int64) error {
	const KiB, MiB = 1 << 10, 1 << 20
	spans := []struct{ at, length int64 }{
		{0, 516 * KiB}, {MiB, 4 * KiB}, {2 * MiB, 4 * KiB}, {4 * MiB, 4 * KiB}, {64 * MiB, 4 * KiB},
		{size - 1544*KiB, 4 * KiB}, {size - MiB, 4 * KiB}, {size - 512*KiB, 512 * KiB},
	}
	data := make([]byte, 516*KiB)
	for _, span := range spans {
		from, until := max(span.at, 0), min(span.at+span.length, size)
		if from >= until {
			continue
		}
		if _, err := device.ReadAt(data[:until-from], from); err != nil {
			return fmt.Errorf("at byte %d: %w", from, err)
		}
	}
	return nil
}

// canResize reports whether a file system is smaller than its device allows: after an expansion that was interrupted before the
// resize, or on a clone that is larger than its source. It returns false for an invalid superblock.
func canResize(fsType string, super []byte, size lvm.Bytes) bool {
	switch fsType {
	case "ext4":
		return canResizeExt4(super, uint64(size))
	case "xfs":
		return canResizeXFS(super, uint64(size))
	case "btrfs":
		return canResizeBtrfs(super, uint64(size))
	}
	return false
}

// canResizeExt4 takes into account that resize2fs omits a last block group that could hold little more than its own tables.
// (Linux, Documentation/filesystems/ext4, "Super Block", has the offsets.)
func canResizeExt4(super []byte, size uint64) bool {
	const (
		magic       = 0xef53
		has64bit    = 0x80
		largestUnit = 6  // 64 KiB blocks
		spared      = 53 // two bitmaps and a backup of the superblock, and the minimum that resize2fs leaves for data
	)
	le := binary.LittleEndian
	unit, group, first := le.Uint32(super[0x18:]), uint64(le.Uint32(super[0x20:])), uint64(le.Uint32(super[0x14:]))
	if le.Uint16(super[0x38:]) != magic || unit > largestUnit || group == 0 {
		return false
	}
	block := uint64(1024) << unit
	has, descriptor := uint64(le.Uint32(super[0x04:])), uint64(32)
	if le.Uint32(super[0x60:])&has64bit != 0 {
		has |= uint64(le.Uint32(super[0x150:])) << 32
		descriptor = 64
	}
	most := size / block
	if most <= has || most <= first {
		return false
	}
	groups, rest := (most-first)/group+1, (most-first)%group
	tables := uint64(le.Uint32(super[0x28:]))*uint64(le.Uint16(super[0x58:]))/block + groups*descriptor/block + uint64(le.Uint16(super[0xce:]))
	if groups > 1 && rest < tables+spared {
		most -= rest
	}
	return most > has
}

// canResizeXFS takes into account that xfs_growfs omits a last allocation group of less than 64 blocks (XFS Algorithms & Data
// Structures, "Superblocks"; XFS_MIN_AG_BLOCKS).
func canResizeXFS(super []byte, size uint64) bool {
	be := binary.BigEndian
	const leastGroup = 64
	block, group := uint64(be.Uint32(super[4:])), uint64(be.Uint32(super[84:]))
	if !bytes.HasPrefix(super, []byte("XFSB")) || block == 0 || group == 0 {
		return false
	}
	most := size / block
	if rest := most % group; rest < leastGroup {
		most -= rest
	}
	return most > be.Uint64(super[8:])
}
