package filesystem

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// ext4Super is the superblock that mkfs.ext4 writes for blocks of 4 KiB, as far as canResize looks.
func ext4Super(blocks uint32, change ...func([]byte)) []byte {
	le := binary.LittleEndian
	s := make([]byte, headSize)
	le.PutUint32(s[0x04:], blocks)
	le.PutUint32(s[0x18:], 2)     // blocks of 4 KiB
	le.PutUint32(s[0x20:], 32768) // blocks in a group
	le.PutUint32(s[0x28:], 8192)  // inodes in a group
	le.PutUint16(s[0x38:], 0xef53)
	le.PutUint16(s[0x58:], 256) // bytes of an inode
	le.PutUint32(s[0x60:], 0x80)
	le.PutUint16(s[0xce:], 100) // blocks reserved for descriptors
	for _, c := range change {
		c(s)
	}
	return s
}

func xfsSuper(blocks uint64) []byte {
	be := binary.BigEndian
	s := make([]byte, headSize)
	copy(s, "XFSB")
	be.PutUint32(s[4:], 4096)
	be.PutUint64(s[8:], blocks)
	be.PutUint32(s[84:], 32768)
	return s
}

func btrfsSuper(total uint64) []byte {
	le := binary.LittleEndian
	s := make([]byte, headSize)
	copy(s[btrfsMagic:], "_BHRfS_M")
	copy(s[btrfsFSID:], "the origin's own")
	le.PutUint64(s[btrfsTotal:], total)
	le.PutUint64(s[btrfsDevices:], 1)
	le.PutUint32(s[btrfsSector:], 4096)
	le.PutUint32(s, btrfsChecksum(s))
	return s
}

func TestCanGrow(t *testing.T) {
	const group = 32768 * 4096
	zero := func(at int) func([]byte) { return func(s []byte) { copy(s[at:], make([]byte, 4)) } }
	for _, test := range []struct {
		what   string
		fsType string
		super  []byte
		size   lvm.Bytes
		want   bool
	}{
		{"ext4 as large as its device", "ext4", ext4Super(65536), 2 * group, false},
		{"ext4, half a block more", "ext4", ext4Super(65536), 2*group + 2048, false},
		{"ext4, a block more in its last group", "ext4", ext4Super(65535), 2 * group, true},
		{"ext4, a last group too small for its tables", "ext4", ext4Super(65536), 2*group + 2*lvm.MiB, false},
		{"ext4, a last group for data", "ext4", ext4Super(65536), 2*group + 4*lvm.MiB, true},
		{"ext4, a device that has shrunk", "ext4", ext4Super(65536), group, false},
		{"ext4 of more than 16 TiB", "ext4", ext4Super(0, func(s []byte) { s[0x150] = 1 }), 16 * lvm.TiB, false},
		{"ext4 of more than 16 TiB, lagging", "ext4", ext4Super(0, func(s []byte) { s[0x150] = 1 }), 17 * lvm.TiB, true},
		{"no ext4", "ext4", ext4Super(65536, zero(0x38)), 9 * group, false},
		{"ext4 without groups", "ext4", ext4Super(65536, zero(0x20)), 9 * group, false},
		{"ext4 with blocks of 2^256", "ext4", ext4Super(65536, func(s []byte) { s[0x18] = 0xff }), 9 * group, false},
		{"xfs as large as its device", "xfs", xfsSuper(65536), 2 * group, false},
		{"xfs, a last group too small", "xfs", xfsSuper(65536), 2*group + 63*4096, false},
		{"xfs, a last group", "xfs", xfsSuper(65536), 2*group + 64*4096, true},
		{"no xfs", "xfs", make([]byte, headSize), 2 * group, false},
		{"btrfs as large as its device", "btrfs", btrfsSuper(2 * group), 2 * group, false},
		{"btrfs, half a sector more", "btrfs", btrfsSuper(2 * group), 2*group + 2048, false},
		{"btrfs, a sector more", "btrfs", btrfsSuper(2 * group), 2*group + 4096, true},
		{"btrfs on less than the kernel resizes", "btrfs", btrfsSuper(group), 2*group - 4096, false},
		{"no btrfs", "btrfs", make([]byte, headSize), group, false},
		{"another file system", "vfat", make([]byte, headSize), group, false},
	} {
		if got := canResize(test.fsType, test.super, test.size); got != test.want {
			t.Errorf("%s: got %v", test.what, got)
		}
	}
}

func TestUUIDOfACopy(t *testing.T) {
	le := binary.LittleEndian
	before := btrfsSuper(1 << 30)
	uuid := btrfsUUID("lv-1")
	after, err := withUUID(before, uuid)
	if err != nil || [16]byte(after[btrfsFSID:]) != uuid || !bytes.Equal(after[btrfsMetadataUUID:][:16], before[btrfsFSID:][:16]) ||
		le.Uint64(after[btrfsIncompat:]) != btrfsHasMetadataUUID || le.Uint32(after) != btrfsChecksum(after) {
		t.Fatalf("the superblock is %x, %v", after, err)
	}
	if again, err := withUUID(after, uuid); again != nil || err != nil {
		t.Errorf("it is changed again: %v", err)
	}
	third, err := withUUID(after, btrfsUUID("lv-2")) // a copy of the copy
	if err != nil || !bytes.Equal(third[btrfsMetadataUUID:][:16], before[btrfsFSID:][:16]) || bytes.Equal(third[btrfsFSID:][:16], after[btrfsFSID:][:16]) {
		t.Errorf("the copy's copy: %x, %v", third, err)
	}
	for what, spoil := range map[string]func([]byte){
		"is missing":            func(s []byte) { s[btrfsMagic] = 0 },
		"crc32c":                func(s []byte) { s[btrfsChecksumType] = 2 },
		"checksum is wrong":     func(s []byte) { s[btrfsTotal]++ },
		"UUID is being changed": func(s []byte) { s[btrfsFlags+4] = 1 << 4; le.PutUint32(s, btrfsChecksum(s)) },
	} {
		bad := bytes.Clone(before)
		spoil(bad)
		kept := bytes.Clone(bad)
		changed, err := withUUID(bad, uuid)
		if changed != nil || lvm.KindOf(err) != lvm.KindConflict || !bytes.Contains([]byte(err.Error()), []byte(what)) || !bytes.Equal(bad, kept) {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

// FuzzSuperblocks: a tenant can write any superblock; reading it never fails the process.
func FuzzSuperblocks(f *testing.F) {
	f.Add(ext4Super(65536), int64(1<<30))
	f.Add(xfsSuper(65536), int64(1<<30))
	f.Add(btrfsSuper(1<<30), int64(1<<31))
	f.Fuzz(func(t *testing.T, super []byte, size int64) {
		super = append(super, make([]byte, headSize)...)[:headSize]
		for fsType := range superblocks {
			if canResize(fsType, super, lvm.Bytes(size&(1<<62-1))) && size == 0 {
				t.Errorf("%s grows into nothing", fsType)
			}
		}
		if changed, err := withUUID(super, btrfsUUID("x")); err == nil && changed != nil && len(changed) != headSize {
			t.Errorf("a superblock of %d bytes", len(changed))
		}
	})
}

// badAt is a device that cannot be read at one byte.
type badAt int64

var errBadSector = errors.New("input/output error")

func (bad badAt) ReadAt(p []byte, at int64) (int, error) {
	if at <= int64(bad) && int64(bad) < at+int64(len(p)) {
		return 0, errBadSector
	}
	return len(p), nil
}

// TestUnreadableSuperblocks: the places are those where blkid reads, as strace shows it, each from a run on a device of
// 320 MiB.
func TestUnreadableSuperblocks(t *testing.T) {
	const size = 320 << 20
	for _, at := range []int64{
		0, 1080, 4096, 8192, 32768, 65600, 263679, 278528, 393215, 524288, 1 << 20, 2 << 20, 4 << 20, 64<<20 + 64,
		333963776, 334495744, 335036416, 335151103, 335168000, 335198720, 335241728, 335298560, 335414271, 335478784, 335512064,
		335536128, 335538688, 335540224, 335543296, size - 1,
	} {
		if err := readSuperblocks(badAt(at), size); !errors.Is(err, errBadSector) {
			t.Errorf("a device that cannot be read at byte %d: %v", at, err)
		}
	}
	if err := readSuperblocks(badAt(100<<20), size); err != nil {
		t.Errorf("where no superblock is: %v", err)
	}
	for _, small := range []lvm.Bytes{0, 512, 4 << 20} {
		if err := readSuperblocks(badAt(small), small); err != nil {
			t.Errorf("a device of %d bytes is read beyond its end: %v", small, err)
		}
	}
}
