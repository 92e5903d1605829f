package filesystem

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
)

// sparse is a device with content at some places.
type sparse struct {
	content map[int64][]byte
	bad     int64 // a byte that cannot be read; 0: none
}

func (s sparse) ReadAt(p []byte, at int64) (int, error) {
	if s.bad != 0 && at <= s.bad && s.bad < at+int64(len(p)) {
		return 0, io.ErrUnexpectedEOF
	}
	clear(p)
	for from, data := range s.content {
		if from < at+int64(len(p)) && at < from+int64(len(data)) {
			copy(p[max(0, from-at):], data[max(0, at-from):])
		}
	}
	return len(p), nil
}

func ext4Copy(block, group int64) []byte {
	super := make([]byte, 1024)
	binary.LittleEndian.PutUint16(super[0x38:], 0xef53)
	for ; block > 1024; block /= 2 {
		super[0x18]++
	}
	binary.LittleEndian.PutUint16(super[0x5a:], uint16(group))
	return super
}

func xfsCopy(blocks uint32) []byte {
	super := make([]byte, 512)
	copy(super, "XFSB")
	binary.BigEndian.PutUint32(super[4:], 4096)
	binary.BigEndian.PutUint32(super[84:], blocks)
	binary.BigEndian.PutUint32(super[88:], 4)
	return super
}

func btrfsCopy(at int64) []byte {
	super := make([]byte, 4096)
	binary.LittleEndian.PutUint64(super[0x30:], uint64(at))
	copy(super[0x40:], "_BHRfS_M")
	return super
}

// TestFindRemains: the copies of superblocks are found for each block size, and nothing else is taken for one.
func TestFindRemains(t *testing.T) {
	const size = 300 << 30
	inode := append(append([]byte("IN\x81\xa4\x03"), make([]byte, 147)...), 0, 0, 0, 0, 0, 0, 0, 128)
	for _, test := range []struct {
		what string
		at   int64
		data []byte
		kind string
	}{
		{"ext4, 4 KiB, group 1", 32768 * 4096, ext4Copy(4096, 1), "ext4"},
		{"ext4, 4 KiB, group 49", 49 * 32768 * 4096, ext4Copy(4096, 49), "ext4"},
		{"ext4, 1 KiB, group 3", (3*8192 + 1) * 1024, ext4Copy(1024, 3), "ext4"},
		{"ext4, 2 KiB, group 5", 5 * 16384 * 2048, ext4Copy(2048, 5), "ext4"},
		{"ext4 with clusters of 64 KiB", 16 * 32768 * 4096, ext4Copy(4096, 1), "ext4"},
		{"ext4, another group's copy", 32768 * 4096, ext4Copy(4096, 0), ""},
		{"ext4, another block size", 32768 * 4096, ext4Copy(1024, 1), ""},
		{"btrfs", 64 << 20, btrfsCopy(64 << 20), "btrfs"},
		{"btrfs, the second mirror", 256 << 30, btrfsCopy(256 << 30), "btrfs"},
		{"btrfs, in a file", 64 << 20, btrfsCopy(64 << 10), ""},
		{"xfs, the second of four groups", size / 4, xfsCopy(size / 4 / 4096), "xfs"},
		{"xfs, aligned to a stripe", size/16 + 64<<10, xfsCopy((size/16 + 64<<10) / 4096), "xfs"},
		{"xfs, in a file", size / 4, xfsCopy(12345), ""},
		{"xfs, the header of free space", 512, []byte("XAGF"), "xfs"},
		{"xfs, an inode", 64 << 10, inode, "xfs"},
		{"a word", 64 << 10, []byte("IN THE BEGINNING"), ""},
		{"LUKS2", 16 << 10, []byte("SKUL\xba\xbe\x00\x02"), "luks"},
		{"LUKS2 with the largest header", 4 << 20, []byte("SKUL\xba\xbe\x00\x02"), "luks"},
		{"nothing", 0, nil, ""},
	} {
		found, err := findRemains(sparse{content: map[int64][]byte{test.at: test.data}}, size)
		if err != nil || found.Kind != test.kind {
			t.Errorf("%s: found %+v, %v", test.what, found, err)
		}
	}
	for _, bad := range []int64{1024, 16 << 10, 64<<20 + 1, 32768 * 4096, size / 4} {
		if _, err := findRemains(sparse{bad: bad}, size); err == nil {
			t.Errorf("a device that cannot be read at byte %d passes", bad)
		}
	}
	for _, small := range []int64{0, 512, 1 << 20, 4 << 20} {
		if found, err := findRemains(bytes.NewReader(make([]byte, small)), small); err != nil || found.Kind != "" {
			t.Errorf("a device of %d bytes: %+v, %v", small, found, err)
		}
	}
}
