package filesystem

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// unfinishedXFS is the superblock that mkfs.xfs writes first and last but one.
func unfinishedXFS(change ...func([]byte)) []byte {
	super := xfsSuper(65536)
	binary.BigEndian.PutUint16(super[100:], 0xb4a5)
	binary.BigEndian.PutUint16(super[102:], 512)
	super[126] = 1
	for _, c := range change {
		c(super)
	}
	binary.LittleEndian.PutUint32(super[224:], 0)
	binary.LittleEndian.PutUint32(super[224:], crc32.Checksum(super[:512], castagnoli))
	return super
}

// TestUnfinishedXFS: only a superblock that is whole and says so itself proves that a mkfs.xfs never ended.
func TestUnfinishedXFS(t *testing.T) {
	if !isUnfinishedXFS(unfinishedXFS()) {
		t.Fatal("the superblock of an unfinished mkfs.xfs is not known")
	}
	for what, change := range map[string]func([]byte){
		"finished":                     func(s []byte) { s[126] = 0 },
		"another value":                func(s []byte) { s[126] = 2 },
		"the format before":            func(s []byte) { s[101] = 0xa4 },
		"no xfs":                       func(s []byte) { s[0] = 0 },
		"a sector of nothing":          func(s []byte) { s[102], s[103] = 0, 0 },
		"a sector beyond what is read": func(s []byte) { s[102], s[103] = 0xff, 0xff },
	} {
		if isUnfinishedXFS(unfinishedXFS(change)) {
			t.Errorf("%s: taken for unfinished", what)
		}
	}
	whole := unfinishedXFS(func(s []byte) { s[126] = 0 })
	for bit := range 512 * 8 { // no single bit of a user's superblock makes it one that may be formatted
		flipped := bytes.Clone(whole)
		flipped[bit/8] ^= 1 << (bit % 8)
		if isUnfinishedXFS(flipped) {
			t.Errorf("with bit %d flipped it is taken for unfinished", bit)
		}
	}
}

// TestMarkPlaces: an expansion leaves the place that the volume's tag names, and the fixed one.
func TestMarkPlaces(t *testing.T) {
	end := func(size lvm.Bytes) int64 { return int64(lvm.FormatMarkOffset(size)) }
	for _, test := range []struct {
		size, created lvm.Bytes // created: 0, the volume has no tag
		want          []int64
	}{
		{16 * lvm.MiB, 16 * lvm.MiB, []int64{3 << 20, end(16 * lvm.MiB)}},
		{32 * lvm.MiB, 16 * lvm.MiB, []int64{3 << 20, end(16 * lvm.MiB), end(32 * lvm.MiB)}},
		{32 * lvm.MiB, 0, []int64{3 << 20, end(32 * lvm.MiB)}},
		{2 * lvm.MiB, 2 * lvm.MiB, []int64{end(2 * lvm.MiB)}},
		{lvm.GiB + 1024, 0, []int64{3 << 20, 1<<30 - 128<<10 - 4096}},
		{8 * lvm.MiB, 16 * lvm.MiB, []int64{3 << 20, end(8 * lvm.MiB)}}, // an admin has shrunk it
		{64 * lvm.KiB, 0, nil},
	} {
		mark := Mark{UUID: "uuid"}
		if test.created > 0 {
			mark.First = lvm.FormatMarkOffset(test.created)
		}
		got := mark.places(test.size)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s, created with %s: %v, want %v", test.size, test.created, got, test.want)
		}
	}
}

func TestUnfinishedExt4(t *testing.T) {
	head := func(at int) []byte { h := make([]byte, headSize); h[at] = 1; return h }
	for at, want := range map[int]bool{0: false, 1023: false, 1024: false, 2047: false, 2048: true, 4095: true} {
		if isUnfinishedExt4(head(at)) != want {
			t.Errorf("a byte at %d: %v", at, !want)
		}
	}
	if isUnfinishedExt4(make([]byte, headSize)) {
		t.Error("a blank head")
	}
	if wasMounted(ext4Super(1)) || !wasMounted(ext4Super(1, func(s []byte) { s[0x2f] = 1 })) || !wasMounted(ext4Super(1, func(s []byte) { s[0x34] = 1 })) {
		t.Error("whether an ext4 was mounted")
	}
}

// TestMarkOfFormerNode: in the mapping of an encrypted volume that moved, the mark is that of a logical volume on a former node; everywhere else such a mark
// is another volume's. It goes with the format.
func TestMarkOfFormerNode(t *testing.T) {
	const size = 16 * lvm.MiB
	first := int64(lvm.FormatMarkOffset(size))
	for _, moved := range []bool{false, true} {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		device, err := os.Create(filepath.Join(t.TempDir(), "device"))
		must(err)
		t.Cleanup(func() { _ = device.Close() })
		must(device.Truncate(int64(size)))
		former := lvm.FormatMark("former")
		torn := bytes.Replace(former, []byte("former"), []byte("forger"), 1)
		for at, block := range map[int64][]byte{3 << 20: torn, first: former} {
			_, err = device.WriteAt(block, at)
			must(err)
		}
		mark := Mark{UUID: "uuid", First: lvm.Bytes(first), Moved: moved}
		found, err := findMarks(device, mark, size)
		if want := []int64{first}; err != nil || slices.Equal(found, want) != moved || !moved && len(found) > 0 {
			t.Errorf("moved %t: %v, %v", moved, found, err)
		}
		must(removeMarks(device, mark, size))
		left := make([]byte, lvm.FormatMarkSize)
		_, err = device.ReadAt(left, first)
		if must(err); isZero(left) != moved {
			t.Errorf("moved %t: the mark stays: %t", moved, !isZero(left))
		}
	}
}
