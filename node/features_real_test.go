//go:build realfs

package node

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/filesystem"
)

// The bits of an xfs superblock (XFS Algorithms & Data Structures, "Superblocks").
const (
	xfsCompatRO, xfsIncompat                               = 212, 216
	finobt, rmapbt, reflink, inobtcount                    = 1, 2, 4, 8
	ftype, sparseInodes, metaUUID, bigtimeBit, nrext64Bit  = 1, 2, 4, 8, 0x20
	btrfsCompatRO, btrfsFreeSpaceTree, btrfsFreeSpaceValid = 180, 1, 2
)

// TestXFSFeaturesOnDisk: what mkfs.xfs writes with our suboptions, alone and among those of a class. The second class has those of a kernel before
// 5.10.
func TestXFSFeaturesOnDisk(t *testing.T) {
	for _, test := range []struct {
		options            string
		compatRO, incompat uint32
	}{
		{"", finobt | reflink | inobtcount, ftype | sparseInodes | bigtimeBit},
		{"-m bigtime=0,inobtcount=0", finobt | reflink, ftype | sparseInodes},
		{"-m reflink=0 -i size=1024", finobt | inobtcount, ftype | sparseInodes | bigtimeBit},
		{"-m bigtime=0,rmapbt=1", finobt | reflink | rmapbt | inobtcount, ftype | sparseInodes},
		{"-m finobt=0", reflink, ftype | sparseInodes | bigtimeBit},
		{"-i nrext64=1,sparse=0 -n ftype=1", finobt | reflink | inobtcount, ftype | bigtimeBit | nrext64Bit},
		{"-b size=1024 -d agcount=2 -l size=64m", finobt | reflink | inobtcount, ftype | sparseInodes | bigtimeBit},
	} {
		super := newBench(t).format("xfs", 320, 0, test.options)
		compatRO, incompat := binary.BigEndian.Uint32(super[xfsCompatRO:]), binary.BigEndian.Uint32(super[xfsIncompat:])
		if compatRO != test.compatRO || incompat != test.incompat {
			t.Errorf("%q: ro_compat %#x, incompat %#x; want %#x, %#x", test.options, compatRO, incompat, test.compatRO, test.incompat)
		}
	}
}

// TestBtrfsFeaturesOnDisk: no feature that a kernel before 6.1 does not mount.
func TestBtrfsFeaturesOnDisk(t *testing.T) {
	super := newBench(t).format("btrfs", 112, 64<<10, "")
	if bits := binary.LittleEndian.Uint64(super[btrfsCompatRO:]); bits&^(btrfsFreeSpaceTree|btrfsFreeSpaceValid) != 0 {
		t.Errorf("compat_ro is %#x", bits)
	}
}

// format formats a volume with options of a class, whatever the kernel, and returns its superblock.
func (b *bench) format(fsType string, size, superblock int64, options string) []byte {
	b.t.Helper()
	f := filesystem.Formatting{Device: b.volume("v", size), Size: lvm.Bytes(size) * megabytes, Mark: b.mark("v"), Type: fsType, Options: strings.Fields(options)}
	b.must(b.tools.Format(b.t.Context(), f))
	return b.superblock("v", superblock)
}

func (b *bench) superblock(name string, at int64) []byte {
	b.t.Helper()
	super, err := b.block.ReadAt(b.devices[name], at, 4096)
	b.must(err)
	return super
}

// TestDirtyExt4IsCheckedBeforeTheMount: a kernel before 5.15 refuses to mount an ext4 whose orphan file holds something; our
// e2fsck takes that away before.
func TestDirtyExt4IsCheckedBeforeTheMount(t *testing.T) {
	const roCompat, orphanPresent = 0x64, 0x10000 // Linux, Documentation/filesystems/ext4, "Super Block"
	b := newBench(t)
	device, staging := b.volume("v", 64), b.path("staging")
	b.must(b.stage("v", "ext4", staging, api.AttributeMkfsOptions, "-O orphan_file"))
	f, err := os.Create(filepath.Join(staging, "unlinked and open"))
	b.must(err)
	b.must(os.Remove(f.Name()))
	b.must(f.Sync())
	b.copyOf("copy", "v") // as a power cut leaves it
	b.must(f.Close())
	if binary.LittleEndian.Uint32(b.superblock("copy", 1024)[roCompat:])&orphanPresent == 0 {
		t.Fatalf("the copy of %s is not dirty", device)
	}
	b.must(b.tools.Fsck(t.Context(), b.devices["copy"], "ext4"))
	if bits := binary.LittleEndian.Uint32(b.superblock("copy", 1024)[roCompat:]); bits&orphanPresent != 0 {
		t.Errorf("ro_compat is still %#x", bits)
	}
	b.must(b.unstage("v", staging))
}

// TestGrowthOfOldFormats: ext2 and ext3, as an adopted volume may have them, and what mkfsOptions makes, grow while they are
// mounted.
func TestGrowthOfOldFormats(t *testing.T) {
	for _, options := range []string{
		"-t ext2", "-t ext3", "-O ^has_journal", "-O ^resize_inode", "-O bigalloc -C 65536", "-O ^flex_bg", "-O ^64bit",
		"-O ^metadata_csum", "-b 2048", "-b 4096 -E packed_meta_blocks=1", "-O inline_data", "-O ^extent,^64bit", "-T largefile4", "-N 1024",
	} {
		t.Run(options, func(t *testing.T) {
			b := newBench(t)
			device, staging := b.volume("v", 128), b.path("staging")
			b.run("mkfs.ext4", append(append([]string{"-q"}, strings.Fields(options)...), device)...)
			b.must(b.stage("v", "ext4", staging))
			b.keep(staging, "data")
			for _, size := range []int64{260, 1024} {
				b.enlarge("v", size)
				b.must(b.expand("v", staging, size))
				b.spans(staging, size)
			}
			b.must(b.unstage("v", staging))
			b.run("fsck.ext4", "-f", "-n", device)
			b.must(b.stage("v", "ext4", staging))
			b.must(b.unstage("v", staging))
		})
	}
}

// TestUnreadableDeviceIsNotBlank: the superblock of a file system lies where its disk cannot be read.
func TestUnreadableDeviceIsNotBlank(t *testing.T) {
	for what, bad := range map[string][2]int64{ // sectors
		"ext4":    {2, 2},
		"btrfs":   {128, 8},
		"the end": {64*2048 - 8, 8},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t)
			loop := b.volume("v", 64)
			device := b.withBadSectors("v", loop, bad[0], bad[1])
			err := b.stage("v", "ext4", b.path("staging"))
			if err == nil || lvm.KindOf(err) != lvm.KindInternal {
				t.Errorf("a device that cannot be read: %v", err)
			}
			t.Logf("it says: %v", err)
			b.run("dmsetup", "remove", filepath.Base(device))
		})
	}
}

// withBadSectors puts a device-mapper device over a volume's, with an error where it is bad, and makes it the volume's.
func (b *bench) withBadSectors(name, loop string, at, count int64) string {
	b.t.Helper()
	const total = 64 * 2048
	mapping := "nodelvm-test-bad"
	var table strings.Builder
	piece := func(from, until int64, target string) {
		if from < until {
			fmt.Fprintf(&table, "%d %d %s\n", from, until-from, target)
		}
	}
	piece(0, at, fmt.Sprintf("linear %s 0", loop))
	piece(at, at+count, "error")
	piece(at+count, total, fmt.Sprintf("linear %s %d", loop, at+count))
	create := exec.CommandContext(b.t.Context(), "dmsetup", "create", mapping)
	create.Stdin = strings.NewReader(table.String())
	if out, err := create.CombinedOutput(); err != nil {
		b.t.Fatalf("dmsetup create: %v\n%s\n%s", err, out, table.String())
	}
	link := b.run("dmsetup", "info", "-c", "--noheadings", "-o", "blkdevname", mapping)
	b.devices[name] = "/dev/" + link
	return "/dev/mapper/" + mapping
}
