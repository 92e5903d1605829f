package node

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestCheckFormat: only a mark, or a superblock that says so itself, allows the format of a volume that the driver created. For the volumes of
// earlier versions the absence of all remains suffices. A copy and a raw volume are never formatted.
func TestCheckFormat(t *testing.T) {
	created, earlier := origin{marked: true}, origin{}
	rest := Remains{Kind: "btrfs", What: "a mirror of a btrfs superblock at byte 67108864"}
	backup := Remains{Kind: "ext4", What: "a copy of an ext4 superblock", Block: 8193, BlockSize: 1024}
	for _, test := range []struct {
		what    string
		content Content
		origin  origin
		says    string // "": it may be formatted
	}{
		{"new", Content{Marked: true}, created, ""},
		{"new, of an earlier version", Content{}, earlier, ""},
		{"an interrupted mkfs.xfs", Content{Unfinished: "xfs"}, created, ""},
		{"an interrupted mkfs.ext4, with its mark", Content{Unfinished: "ext4", Marked: true}, created, ""},
		{"zeroes", Content{}, created, "was in use, and contains nothing that the driver recognizes: its beginning is damaged"},
		{"zeroes and a mirror", Content{Rest: rest}, created, "but it has a mirror of a btrfs superblock at byte 67108864"},
		{"the same of an earlier version", Content{Rest: rest}, earlier, "btrfs rescue super-recover /dev/dm-3"},
		{"a copy of the superblock", Content{Rest: backup}, earlier, "e2fsck -b 8193 -B 1024 /dev/dm-3"},
		{"a restored volume", Content{}, origin{copied: true}, "never formats a copy"},
		{"a restored volume with its own mark", Content{Marked: true}, origin{copied: true, marked: true}, "never formats a copy"},
		{"a raw volume", Content{}, origin{raw: true}, "raw block volume"},
	} {
		act, err := planContent("/dev/dm-3", test.content, test.origin, "ext4", lvm.GiB)
		want := do(actFormat)
		if test.says != "" {
			want = refuse(lvm.KindConflict, test.says)
		}
		t.Run(test.what, func(t *testing.T) { want.check(t, act, err) })
	}
}

// TestRefusalsNameTheRepair: also of content that another program may have written.
func TestRefusalsNameTheRepair(t *testing.T) {
	for fsType, tool := range map[string]string{"ext4": "e2fsck -b 32768 -B 4096 /dev/dm-3", "xfs": "xfs_repair /dev/dm-3", "btrfs": "btrfs rescue super-recover /dev/dm-3", "luks": "cryptsetup repair /dev/dm-3"} {
		for _, o := range []origin{{marked: true}, {}} {
			err := refuseContent("/dev/dm-3", Content{Others: []string{"noise"}}, o, fsType)
			if lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(err.Error(), tool) || !strings.Contains(err.Error(), "noise") || o.marked == strings.Contains(err.Error(), "wipefs -a") {
				t.Errorf("%s, %+v: %v", fsType, o, err)
			}
		}
	}
}

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

// TestFormatUnderTheMark: NodeStageVolume formats a created volume only with its mark, in the logical volume or, if that is encrypted, in
// both devices, and removes the logical volume's before it is used.
func TestFormatUnderTheMark(t *testing.T) {
	f := newFake()
	f.volume.FormatMark = 12345 * lvm.FormatMarkSize
	if err := f.stage(t); lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(err.Error(), "was in use") {
		t.Errorf("a volume without its mark: %v", err)
	}
	f.expect(t, "activate")
	f.content.Marked = true
	succeed(t, f.stage(t))
	f.expect(t, "activate", "format ext4 /dev/dm-3", "create /staging", "mount /dev/dm-3 /staging ext4 errors=remount-ro")

	f = newEncrypted()
	f.volume.FormatMark = lvm.LUKSHeaderSize + 12345*lvm.FormatMarkSize
	if err := f.stageEncrypted(t, secret); lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(err.Error(), "cryptsetup repair /dev/dm-3") {
		t.Errorf("an encrypted volume without its mark: %v", err)
	}
	f.expect(t, "activate")
	f.contents = map[string]Content{"/dev/dm-3": {Marked: true}, mappingPath: {}}
	if err := f.stageEncrypted(t, secret); lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(err.Error(), "e2fsck") {
		t.Errorf("a mapping without its mark: %v", err)
	}
	f.expect(t, "activate", "remove mark /dev/dm-3 uuid", "write mark /dev/dm-7 uuid at 50565120", "open /dev/dm-3")
	f.contents = map[string]Content{mappingPath: {Marked: true}}
	succeed(t, f.stageEncrypted(t, secret))
	f.expect(t, "activate", "open /dev/dm-3", "format ext4 /dev/dm-7", "create /staging", "mount /dev/dm-7 /staging ext4 errors=remount-ro")

	f = newEncrypted() // its user can read each byte of the mapping
	f.volume.FormatMark, f.volume.Block = lvm.LUKSHeaderSize+12345*lvm.FormatMarkSize, true
	f.content.Marked = true
	succeed(t, f.stageEncrypted(t, secret, rawBlock))
	f.expect(t, "activate", "remove mark /dev/dm-3 uuid", "open /dev/dm-3")
}
