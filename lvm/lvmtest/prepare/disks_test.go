//go:build reallvm

package prepare

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

// poke writes to a disk's file directly.
func poke(t testing.TB, disk string, at int64, data []byte) {
	t.Helper()
	f, err := os.OpenFile(disk, os.O_WRONLY|os.O_SYNC, 0)
	hosttest.Must(t, err)
	_, err = f.WriteAt(data, at)
	hosttest.Must(t, err)
	hosttest.Must(t, f.Close())
}

// digest is a checksum of a loop device's content; it skips the holes of its file.
func digest(t testing.TB, disk string) string {
	t.Helper()
	device, err := os.Open(disk)
	hosttest.Must(t, err)
	hosttest.Must(t, device.Sync())
	hosttest.Must(t, device.Close())
	name, err := os.ReadFile("/sys/block/" + filepath.Base(disk) + "/loop/backing_file")
	hosttest.Must(t, err)
	f, err := os.Open(strings.TrimSpace(string(name)))
	hosttest.Must(t, err)
	defer func() { _ = f.Close() }()
	const seekData, seekHole = 3, 4 // lseek(2)
	hash, page, blank := sha256.New(), make([]byte, 4096), make([]byte, 4096)
	for end := int64(0); ; {
		at, err := f.Seek(end, seekData)
		if errors.Is(err, syscall.ENXIO) {
			return hex.EncodeToString(hash.Sum(nil))
		}
		hosttest.Must(t, err)
		end, err = f.Seek(at, seekHole)
		hosttest.Must(t, err)
		for ; at < end; at += int64(len(page)) {
			_, err := f.ReadAt(page, at)
			hosttest.Must(t, err)
			if !bytes.Equal(page, blank) {
				_, _ = fmt.Fprintln(hash, at)
				_, _ = hash.Write(page)
			}
		}
	}
}

// mbr is a partition table with one Linux partition.
func mbr() []byte {
	b := make([]byte, 512)
	copy(b[446:], []byte{0, 1, 1, 0, 0x83, 1, 1, 0})
	binary.LittleEndian.PutUint32(b[454:], 2048)
	binary.LittleEndian.PutUint32(b[458:], 2048)
	b[510], b[511] = 0x55, 0xaa
	return b
}

// vfat is the boot sector of an empty FAT16 file system, and the beginning of its table.
func vfat() []byte {
	b := make([]byte, 1024)
	copy(b, "\xeb\x3c\x90mkfs.fat")
	copy(b[11:], []byte{0, 2, 4, 1, 0, 2, 0, 2, 0, 0xc0, 0xf8, 48, 0})
	copy(b[36:], "\x80\x00\x29\x01\x02\x03\x04NO NAME    FAT16   ")
	b[510], b[511] = 0x55, 0xaa
	copy(b[512:], []byte{0xf8, 0xff, 0xff, 0xff})
	return b
}

// raidMember is the superblock of a Linux software RAID, version 1.2, which is at byte 4096.
func raidMember() []byte {
	b := make([]byte, 256)
	binary.LittleEndian.PutUint32(b, 0xa92b4efc)
	binary.LittleEndian.PutUint32(b[4:], 1)
	copy(b[16:], "0123456789abcdef")
	binary.LittleEndian.PutUint64(b[144:], 8) // its position, in sectors
	sum := uint64(0)
	for i := 0; i < 256; i += 4 {
		sum += uint64(binary.LittleEndian.Uint32(b[i:]))
	}
	binary.LittleEndian.PutUint32(b[216:], uint32(sum)+uint32(sum>>32))
	return b
}

// dirt lists the reasons to ignore a disk: how to create each, and a word of the report.
var dirt = []struct {
	name, report string
	size         int // MiB
	make         func(t *testing.T, disk string)
}{
	{"mbr", "a partition table (dos)", 24, func(t *testing.T, disk string) { poke(t, disk, 0, mbr()) }},
	{"gpt", "a partition table (gpt)", 24, func(t *testing.T, disk string) { poke(t, disk, 0, gpt(24)) }},
	{"ext4", "type ext4", 24, func(t *testing.T, disk string) { reallvm.Tool(t, "mkfs.ext4", "-q", disk) }},
	{"xfs", "type xfs", 304, func(t *testing.T, disk string) { reallvm.Tool(t, "mkfs.xfs", "-q", disk) }},
	{"btrfs", "type btrfs", 120, func(t *testing.T, disk string) { reallvm.Tool(t, "mkfs.btrfs", "-q", disk) }},
	{"vfat", "type vfat", 24, func(t *testing.T, disk string) { poke(t, disk, 0, vfat()) }},
	{"luks", "crypto_LUKS", 24, func(t *testing.T, disk string) {
		key := filepath.Join(t.TempDir(), "key")
		hosttest.Must(t, os.WriteFile(key, []byte("secret"), 0o600))
		reallvm.Tool(t, "cryptsetup", "luksFormat", "-q", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", disk, key)
	}},
	{"group", "it belongs to volume group nodelvm-other", 24, func(t *testing.T, disk string) {
		reallvm.Admin(t, "vgcreate", "-y", "nodelvm-other", disk)
		t.Cleanup(func() { reallvm.Admin(t, "vgremove", "-ff", "-y", "nodelvm-other") })
	}},
	{"orphan", "a physical volume of LVM that is in no group", 24, func(t *testing.T, disk string) { reallvm.Admin(t, "pvcreate", "-y", disk) }},
	{"raid", "linux_raid_member", 24, func(t *testing.T, disk string) { poke(t, disk, 4096, raidMember()) }},
	{"swap", "swap", 24, func(t *testing.T, disk string) { reallvm.Tool(t, "mkswap", disk) }},
	{"swapping", "is swap space", 24, func(t *testing.T, disk string) {
		reallvm.Tool(t, "mkswap", disk)
		reallvm.Tool(t, "swapon", disk)
		t.Cleanup(func() { reallvm.Tool(t, "swapoff", disk) })
	}},
	{"mounted", "is mounted at ", 24, func(t *testing.T, disk string) {
		reallvm.Tool(t, "mkfs.ext4", "-q", disk)
		dir := t.TempDir()
		reallvm.Tool(t, "mount", "-o", "ro", disk, dir)
		t.Cleanup(func() { reallvm.Tool(t, "umount", dir) })
	}},
	{"held", "is a part of dm-", 24, func(t *testing.T, disk string) {
		reallvm.Tool(t, "dmsetup", "create", "--noudevsync", "nodelvm-holder", "--table", "0 2048 linear "+disk+" 0")
		t.Cleanup(func() { reallvm.Tool(t, "dmsetup", "remove", "--noudevsync", "--retry", "nodelvm-holder") })
	}},
	{"opened", "it is in use", 24, func(t *testing.T, disk string) { // like an invisible mount in a container
		f, err := os.OpenFile(disk, os.O_RDONLY|exclusive, 0)
		hosttest.Must(t, err)
		t.Cleanup(func() { hosttest.Must(t, f.Close()) })
	}},
	{"read-only", "it is read-only", 24, func(t *testing.T, disk string) { reallvm.Tool(t, "blockdev", "--setro", disk) }},
	{"at-the-end", "data of an unknown kind (at byte 25165823)", 24, func(t *testing.T, disk string) { poke(t, disk, 24<<20-1, []byte{1}) }},
	{"in-front", "data of an unknown kind (at byte 777)", 24, func(t *testing.T, disk string) { poke(t, disk, 777, []byte{1}) }},
	{"second-mib", "data of an unknown kind (at byte 1049656)", 24, func(t *testing.T, disk string) { poke(t, disk, 1<<20+1080, []byte{0x53, 0xef}) }},
	{"behind-loop", "is the backing device of loop", 24, func(t *testing.T, disk string) { // as the kubelet gives it to a pod
		loop := strings.TrimSpace(reallvm.Tool(t, "losetup", "--find", "--show", disk))
		t.Cleanup(func() { reallvm.Detach(t, loop) })
	}},
	{"tiny", "smaller than 16 MiB", 8, func(*testing.T, string) {}},
}

// gpt is a GUID partition table without partitions, for a disk of so many MiB.
func gpt(mebibytes int) []byte {
	sectors := uint64(mebibytes) << 11
	b := make([]byte, 34*512)
	copy(b[446:], []byte{0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0})
	binary.LittleEndian.PutUint32(b[458:], uint32(sectors-1))
	b[510], b[511] = 0x55, 0xaa
	h := b[512:1024]
	copy(h, "EFI PART\x00\x00\x01\x00\x5c\x00\x00\x00")
	for at, value := range map[int]uint64{24: 1, 32: sectors - 1, 40: 34, 48: sectors - 34, 72: 2} {
		binary.LittleEndian.PutUint64(h[at:], value)
	}
	copy(h[56:], "0123456789abcdef")
	binary.LittleEndian.PutUint32(h[80:], 128)
	binary.LittleEndian.PutUint32(h[84:], 128)
	binary.LittleEndian.PutUint32(h[88:], crc32.ChecksumIEEE(b[1024:]))
	binary.LittleEndian.PutUint32(h[16:], crc32.ChecksumIEEE(h[:92]))
	return b
}

// exclusive is O_EXCL on a block device: only one process can open it.
const exclusive = syscall.O_EXCL
