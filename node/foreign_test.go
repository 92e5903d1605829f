//go:build realfs

package node

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// write puts bytes on a device.
func (b *bench) write(device string, offset int64, data []byte) {
	b.t.Helper()
	f, err := os.OpenFile(device, os.O_WRONLY|os.O_SYNC, 0)
	b.must(err)
	_, err = f.WriteAt(data, offset)
	b.must(err)
	b.must(f.Close())
}

func (b *bench) noise(device string, offset, length int64) {
	b.t.Helper()
	data := make([]byte, length)
	_, _ = rand.Read(data) // never fails
	b.write(device, offset, data)
}

// foreign are contents that people have on disks, by the way they are made on a device of so many bytes.
var foreign = map[string]func(b *bench, device string, size int64){
	"ext4":  func(b *bench, device string, _ int64) { b.run("mkfs.ext4", "-q", device) },
	"xfs":   func(b *bench, device string, _ int64) { b.run("mkfs.xfs", "-q", device) },
	"btrfs": func(b *bench, device string, _ int64) { b.run("mkfs.btrfs", "-q", device) },
	"vfat": func(b *bench, device string, size int64) {
		boot := make([]byte, 512) // Microsoft FAT specification, "Boot Sector and BPB"
		copy(boot, "\xeb\x3c\x90mkfs.fat\x00\x02\x04\x01\x00\x02\x00\x02\x00\x00\xf8\x18\x00")
		binary.LittleEndian.PutUint16(boot[19:], uint16(size/512))
		copy(boot[38:], "\x29\x01\x02\x03\x04NO NAME    FAT16   ")
		copy(boot[510:], "\x55\xaa")
		b.write(device, 0, boot)
	},
	"swap": func(b *bench, device string, _ int64) { b.run("mkswap", device) },
	"LVM2_member": func(b *bench, device string, _ int64) {
		b.run("pvcreate", "-qq", "-y", "--devices", device, device)
	},
	"crypto_LUKS": func(b *bench, device string, _ int64) {
		header := make([]byte, 592) // LUKS1 on-disk format, "phdr"
		copy(header, "LUKS\xba\xbe\x00\x01aes")
		copy(header[168:], "0f2c6a4e-7b1d-4f3e-9a55-1c2d3e4f5a6b")
		b.write(device, 0, header)
	},
	"dos": func(b *bench, device string, _ int64) { b.write(device, 0, mbr(0x83, 2048, 20480)) },
	"gpt": func(b *bench, device string, size int64) {
		b.write(device, 0, mbr(0xee, 1, uint32(size/512-1)))
		b.write(device, 512, gpt(uint64(size/512)))
	},
	"linux_raid_member": func(b *bench, device string, size int64) {
		super := make([]byte, 4096) // version 0.90: the last whole 64 KiB (md(4))
		binary.LittleEndian.PutUint32(super, 0xa92b4efc)
		binary.LittleEndian.PutUint32(super[8:], 90)
		copy(super[20:], "\x01\x02\x03\x04")
		b.write(device, size/65536*65536-65536, super)
	},
	"data of an unknown kind": func(b *bench, device string, _ int64) { b.noise(device, 100, 50) },
}

func mbr(kind byte, first, sectors uint32) []byte {
	sector := make([]byte, 512)
	entry := sector[446:]
	entry[4] = kind
	binary.LittleEndian.PutUint32(entry[8:], first)
	binary.LittleEndian.PutUint32(entry[12:], sectors)
	copy(sector[510:], "\x55\xaa")
	return sector
}

// gpt is a header and a table of 128 entries, the first in use (UEFI specification, "GUID Partition Table").
func gpt(sectors uint64) []byte {
	table := make([]byte, 128*128)
	copy(table, "\xaf\x3d\xc6\x0f\x83\x84\x72\x47\x8e\x79\x3d\x69\xd8\x47\x7d\xe4unique to this 1")
	binary.LittleEndian.PutUint64(table[32:], 2048)
	binary.LittleEndian.PutUint64(table[40:], 4095)
	header := make([]byte, 512)
	copy(header, "EFI PART\x00\x00\x01\x00\x5c\x00\x00\x00")
	for at, value := range map[int]uint64{24: 1, 32: sectors - 1, 40: 34, 48: sectors - 34, 72: 2} {
		binary.LittleEndian.PutUint64(header[at:], value)
	}
	binary.LittleEndian.PutUint32(header[80:], 128)
	binary.LittleEndian.PutUint32(header[84:], 128)
	binary.LittleEndian.PutUint32(header[88:], crc32.ChecksumIEEE(table))
	binary.LittleEndian.PutUint32(header[16:], crc32.ChecksumIEEE(header[:92]))
	return append(header, table...)
}

func TestForeignContentIsKept(t *testing.T) {
	for what, put := range foreign {
		t.Run(what, func(t *testing.T) {
			wanted := "ext4"
			if what == wanted {
				wanted = "xfs"
			}
			b := newBench(t)
			size := sizeFor(what)
			device := b.volume("v", size)
			put(b, device, size*megabytes)
			b.refused(what, b.digestBefore(), func() error { return b.stage("v", wanted, b.path("staging")) })
			if _, err := os.Lstat(b.path("staging")); !os.IsNotExist(err) {
				t.Errorf("a staging path was made: %v", err)
			}
		})
	}
}

// sizeFor is the least, in MiB, that a maker needs.
func sizeFor(what string) int64 {
	switch what {
	case "xfs":
		return 300
	case "btrfs":
		return 112
	}
	return 12
}

// digest sums up a volume: each page that is not all zeros, and where it is. The holes of its image stay unread.
func (b *bench) digest(name string) string {
	b.t.Helper()
	b.run("sync", b.devices[name])
	f, err := os.Open(b.path(name + ".img"))
	b.must(err)
	defer func() { _ = f.Close() }()
	sum, page := sha256.New(), make([]byte, 4096)
	for at := int64(0); ; at += int64(len(page)) {
		at, err = unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // no more data
			return hex.EncodeToString(sum.Sum(nil))
		}
		b.must(err)
		_, err = f.ReadAt(page, at)
		b.must(err)
		if len(bytes.Trim(page, "\x00")) > 0 {
			_, _ = fmt.Fprintln(sum, at)
			_, _ = sum.Write(page)
		}
	}
}

// digestBefore returns a check that the volume "v" has not changed since.
func (b *bench) digestBefore() func() {
	before := b.digest("v")
	return func() {
		b.t.Helper()
		if b.digest("v") != before {
			b.t.Error("the device was changed")
		}
	}
}

// refused runs a call that must fail for what is there, in words that name it, and change nothing.
func (b *bench) refused(what string, unchanged func(), call func() error) {
	b.t.Helper()
	err := call()
	if lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(err.Error(), what) {
		b.t.Errorf("got %v, want a refusal that names %s", err, what)
	}
	b.t.Logf("it says: %v", err)
	unchanged()
}

func TestStagingPathWithForeignContent(t *testing.T) {
	for what, take := range map[string]func(b *bench, path string){
		"a directory that is not empty": func(b *bench, path string) {
			b.must(os.Mkdir(path, 0o750))
			b.must(os.WriteFile(filepath.Join(path, "theirs"), []byte("x"), 0o600))
		},
		"a file with content": func(b *bench, path string) { b.must(os.WriteFile(path, []byte("x"), 0o600)) },
		"neither":             func(b *bench, path string) { b.must(os.Symlink("/etc", path)) },
		"tmpfs": func(b *bench, path string) {
			b.must(os.Mkdir(path, 0o750))
			b.run("mount", "-t", "tmpfs", "somebody", path)
			b.t.Cleanup(func() { b.run("umount", path) })
		},
		"ext4": func(b *bench, path string) {
			b.volume("other", 16)
			b.must(b.stage("other", "ext4", path))
		},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t)
			b.volume("v", 16)
			staging := b.path("staging")
			take(b, staging)
			b.refused(what, b.digestBefore(), func() error { return b.stage("v", "ext4", staging) })
		})
	}
}

func TestBrokenFileSystem(t *testing.T) {
	b := newBench(t)
	device := b.volume("v", 64)
	b.run("mkfs.ext4", "-q", device)
	b.run("debugfs", "-w", "-R", "clri <2>", device)                // the root directory is gone,
	b.run("debugfs", "-w", "-R", "set_super_value state 2", device) // and the file system knows of errors
	b.refused("errors that cannot be repaired automatically", func() {}, func() error { return b.stage("v", "ext4", b.path("staging")) })
}

func TestOpenDeviceIsNotFormatted(t *testing.T) {
	b := newBench(t)
	device := b.volume("v", 16)
	f, err := os.OpenFile(device, os.O_RDONLY|os.O_EXCL, 0)
	b.must(err)
	if err := b.stage("v", "ext4", b.path("staging")); lvm.KindOf(err) != lvm.KindInUse {
		t.Errorf("got %v, want in use", err)
	}
	b.must(f.Close())
	b.must(b.stage("v", "ext4", b.path("staging")))
	b.must(b.unstage("v", b.path("staging")))
}

func TestDataBeyondZeroedHeadIsNoContent(t *testing.T) {
	b := newBench(t)
	device := b.volume("v", 16)
	b.noise(device, 4096, megabytes) // what wipe "none" may leave
	b.must(b.stage("v", "ext4", b.path("staging")))
	b.must(b.unstage("v", b.path("staging")))
}
