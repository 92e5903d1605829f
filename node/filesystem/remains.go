package filesystem

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// Remains are what a file system or a LUKS header leaves on a device whose first superblock is damaged.
type Remains struct {
	Kind string // "ext4", "xfs", "btrfs", "luks"; "": nothing was found
	What string // describes it and its place
	// Block and BlockSize are of a copy of an ext4 superblock, as e2fsck -b and -B need them.
	Block, BlockSize int64
}

const (
	kib = int64(1) << 10
	mib = int64(1) << 20
	gib = int64(1) << 30
)

// findRemains searches a device, on which no superblock was recognized, for the copies of superblocks and, for xfs, the first structures
// behind it. It reads at most a few dozen MiB. Nothing found is no proof: a small ext4 has no copy, and an xfs that was expanded has its
// copies at places that only the lost superblock tells.
func findRemains(device io.ReaderAt, size int64) (Remains, error) {
	for _, find := range []func(io.ReaderAt, int64) (Remains, error){findLUKSCopy, findBtrfsCopy, findExt4Copy, findXFSRemains} {
		if found, err := find(device, size); err != nil || found.Kind != "" {
			return found, err
		}
	}
	return Remains{}, nil
}

// readIfThere reads part of a device; nil if the device ends before that.
func readIfThere(device io.ReaderAt, at, length, size int64) ([]byte, error) {
	if length == 0 || at < 0 || at+length > size {
		return nil, nil
	}
	data := make([]byte, length)
	if _, err := device.ReadAt(data, at); err != nil {
		return nil, fmt.Errorf("at byte %d: %w", at, err)
	}
	return data, nil
}

// findLUKSCopy searches the places of LUKS2's second header, one for each size of the first (LUKS2 On-Disk Format Specification,
// "Binary Header").
func findLUKSCopy(device io.ReaderAt, size int64) (Remains, error) {
	for at := 16 * kib; at <= 4*mib; at *= 2 {
		data, err := readIfThere(device, at, 8, size)
		if err != nil {
			return Remains{}, err
		}
		if bytes.HasPrefix(data, []byte("SKUL\xba\xbe")) {
			return Remains{Kind: "luks", What: fmt.Sprintf("the second LUKS2 header at byte %d", at)}, nil
		}
	}
	return Remains{}, nil
}

// findBtrfsCopy searches the two mirrors of the superblock (Linux, fs/btrfs/disk-io.h).
func findBtrfsCopy(device io.ReaderAt, size int64) (Remains, error) {
	const addressAt, magicAt = 0x30, 0x40
	for _, at := range []int64{64 * mib, 256 * gib} {
		data, err := readIfThere(device, at, 4*kib, size)
		if err != nil {
			return Remains{}, err
		}
		if data != nil && bytes.HasPrefix(data[magicAt:], []byte("_BHRfS_M")) && binary.LittleEndian.Uint64(data[addressAt:]) == uint64(at) {
			return Remains{Kind: "btrfs", What: fmt.Sprintf("a mirror of a btrfs superblock at byte %d", at)}, nil
		}
	}
	return Remains{}, nil
}

// ext4BackupGroups are the first block groups with a copy of the superblock: 1, and powers of 3, 5 and 7 (Linux,
// Documentation/filesystems/ext4, "Block Groups").
var ext4BackupGroups = []int64{1, 3, 5, 7, 9, 25, 27, 49}

// findExt4Copy searches them for each size of a block. A cluster of bigalloc has several blocks, and a group then as many times more.
func findExt4Copy(device io.ReaderAt, size int64) (Remains, error) {
	const largestCluster = 512 * mib
	for _, block := range []int64{4 * kib, kib, 2 * kib} {
		first := int64(0) // block of the first group
		if block == kib {
			first = 1
		}
		for cluster := block; cluster <= largestCluster; cluster *= 2 {
			for _, group := range ext4BackupGroups {
				number := first + group*8*block*(cluster/block)
				data, err := readIfThere(device, number*block, kib, size)
				if err != nil {
					return Remains{}, err
				}
				if isExt4Copy(data, block, group) {
					return Remains{Kind: "ext4", What: fmt.Sprintf("a copy of an ext4 superblock in block %d of %d bytes", number, block), Block: number, BlockSize: block}, nil
				}
			}
		}
	}
	return Remains{}, nil
}

func isExt4Copy(super []byte, block, group int64) bool {
	const shiftAt, magicAt, groupAt = 0x18, 0x38, 0x5a
	le := binary.LittleEndian
	return super != nil && le.Uint16(super[magicAt:]) == 0xef53 && le.Uint32(super[shiftAt:]) <= 6 && kib<<le.Uint32(super[shiftAt:]) == block && int64(le.Uint16(super[groupAt:])) == group
}

// xfsMagics begin the structures of an allocation group that follow its superblock (XFS Algorithms & Data Structures, "Magic Numbers").
var xfsMagics = []string{"XAGF", "XAGI", "XAFL", "AB3B", "AB3C", "IAB3", "FIB3", "R3FC", "XDB3", "XDD3", "XD2B", "XD2D"}

// findXFSRemains searches the beginning of the first group, and where the other groups begin on a device that was not expanded.
func findXFSRemains(device io.ReaderAt, size int64) (Remains, error) {
	head, err := readIfThere(device, 0, min(mib, size), size)
	if err != nil {
		return Remains{}, err
	}
	for at := int64(0); at+512 <= int64(len(head)); at += 512 {
		if what := xfsStructure(head[at:]); what != "" {
			return Remains{Kind: "xfs", What: fmt.Sprintf("%s at byte %d", what, at)}, nil
		}
	}
	// mkfs.xfs divides a device evenly into 4 groups, or up to 32 on several disks, and aligns them to the stripes.
	const mostGroups, window = 32, 256 * kib
	for groups := int64(2); groups <= mostGroups; groups++ {
		from := max(0, size/groups/(4*kib)*(4*kib)-window)
		data, err := readIfThere(device, from, 2*window, size)
		if err != nil {
			return Remains{}, err
		}
		for at := int64(0); at < int64(len(data)); at += kib {
			if isXFSCopy(data[at:], from+at) {
				return Remains{Kind: "xfs", What: fmt.Sprintf("the superblock of an xfs allocation group at byte %d", from+at)}, nil
			}
		}
	}
	return Remains{}, nil
}

// xfsStructure names the structure at the beginning of a sector; "": none.
func xfsStructure(sector []byte) string {
	const versionAt, numberAt = 4, 152
	for _, magic := range xfsMagics {
		if bytes.HasPrefix(sector, []byte(magic)) {
			return fmt.Sprintf("an xfs structure (%s)", magic)
		}
	}
	if bytes.HasPrefix(sector, []byte("IN")) && sector[versionAt] == 3 && binary.BigEndian.Uint64(sector[numberAt:]) != 0 {
		return "an xfs inode"
	}
	return ""
}

// isXFSCopy reports whether a superblock is that of another group than the first: the byte is the begin of a group of its size.
func isXFSCopy(super []byte, at int64) bool {
	const blockAt, groupBlocksAt, groupsAt, largestBlock = 4, 84, 88, 64 * kib
	be := binary.BigEndian
	if at == 0 || len(super) < 512 || !bytes.HasPrefix(super, []byte("XFSB")) {
		return false
	}
	block, blocks := int64(be.Uint32(super[blockAt:])), int64(be.Uint32(super[groupBlocksAt:]))
	return block > 0 && block <= largestBlock && blocks > 0 && at%(block*blocks) == 0 && at/(block*blocks) < int64(be.Uint32(super[groupsAt:]))
}
