package filesystem

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// CanResize reports whether the file system on a device is smaller than the device allows. It starts no process. The superblock of a mounted
// xfs on the device may be older than the last resize, and Resize then does nothing; it is never newer.
func (Tools) CanResize(device, fsType string) (bool, error) {
	if !slices.Contains(Types, fsType) {
		return false, nil
	}
	super, size, err := readSuperblock(device, fsType)
	if err != nil {
		return false, err
	}
	return canResize(fsType, super, size), nil
}

// Resize resizes a mounted file system to its device. It is never interrupted, and does not probe the device.
func (m Tools) Resize(device, path, fsType string) error {
	argv := map[string][]string{
		"ext4":  {"resize2fs", device},
		"xfs":   {"xfs_growfs", "-d", path},
		"btrfs": {"btrfs", "filesystem", "resize", "max", path},
	}[fsType]
	if argv == nil {
		return lvm.Errorf(lvm.KindInternal, "cannot resize a file system of type %q", fsType)
	}
	if words, err := m.run(m.Exec.Command(argv[0], argv[1:]...)); err != nil {
		return lvm.Errorf(lvm.KindInternal, "the volume is expanded but its file system is not resized yet; the driver retries when the volume is staged or expanded: %s: %w: %s",
			strings.Join(argv, " "), err, words)
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
