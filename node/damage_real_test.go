//go:build realfs

package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/filesystem"
)

// damage overwrites a part of a device.
type damage struct {
	name       string
	at, length int64
	noise      bool
}

// chosenDamages hit what identifies a file system of each type: its superblock, the first chunk of a thin pool, the copies.
var chosenDamages = map[string][]damage{
	"ext4": {
		{name: "the superblock", at: 1024, length: 1024}, {name: "noise in the superblock", at: 1024, length: 1024, noise: true},
		{name: "its magic number", at: 1080, length: 2}, {name: "its checksum", at: 1024 + 1020, length: 4, noise: true},
		{name: "the first block", at: 0, length: 4 << 10}, {name: "a chunk of 64 KiB", at: 0, length: 64 << 10}, {name: "a chunk of 1 MiB", at: 0, length: 1 << 20},
		{name: "a chunk of 1 MiB, noise", at: 0, length: 1 << 20, noise: true}, {name: "the group descriptors", at: 4 << 10, length: 60 << 10}, {name: "all before the first copy", at: 0, length: 128 << 20},
	},
	"xfs": {
		{name: "the superblock", at: 0, length: 512}, {name: "noise in the superblock", at: 0, length: 512, noise: true},
		{name: "its magic number", at: 0, length: 4}, {name: "its checksum", at: 224, length: 4, noise: true},
		{name: "the first block", at: 0, length: 4 << 10}, {name: "a chunk of 64 KiB", at: 0, length: 64 << 10}, {name: "a chunk of 1 MiB", at: 0, length: 1 << 20},
		{name: "a chunk of 1 MiB, noise", at: 0, length: 1 << 20, noise: true}, {name: "the free space header", at: 512, length: 512}, {name: "the first group", at: 0, length: 75 << 20},
	},
	"btrfs": {
		{name: "the superblock", at: 64 << 10, length: 4 << 10}, {name: "noise in the superblock", at: 64 << 10, length: 4 << 10, noise: true},
		{name: "its magic number", at: 64<<10 + 64, length: 8}, {name: "its checksum", at: 64 << 10, length: 4, noise: true},
		{name: "superblock and mirror", at: 64 << 10, length: 64<<20 - 60<<10}, {name: "the mirror", at: 64 << 20, length: 4 << 10}, {name: "a chunk of 64 KiB", at: 0, length: 64 << 10},
		{name: "a chunk of 1 MiB", at: 0, length: 1 << 20}, {name: "a chunk of 1 MiB, noise", at: 0, length: 1 << 20, noise: true}, {name: "the first trees", at: 1 << 20, length: 48 << 20},
	},
}

const randomDamages = 30

// randomDamage is one of those that a bad block, a lost chunk or a stray write causes; most of them near the beginning.
func randomDamage(random *rand.Rand, size int64) damage {
	length := int64(512) << random.IntN(13)
	reach := []int64{128 << 10, 2 << 20, size}[random.IntN(3)]
	at := random.Int64N(max(1, (reach-length)/512)) * 512
	return damage{at: at, length: length, noise: random.IntN(2) == 0}
}

// noFormat fails a test that formats a device.
type noFormat struct {
	Tools
	t *testing.T
}

func (n noFormat) Format(_ context.Context, f filesystem.Formatting) error {
	n.t.Errorf("the driver formats %s", f.Device)
	return nil
}

// repairs are the tools that a message can name.
var repairs = regexp.MustCompile(`e2fsck -b \d+ -B \d+ /dev/|fsck\.ext4 /dev/|xfs_repair /dev/|btrfs rescue super-recover /dev/|cryptsetup repair /dev/`)

// TestDamagedFileSystemIsNeverFormatted: whatever part of a used file system is damaged, the driver mounts what is left or refuses, names the
// repair, and changes nothing that the repair needs.
func TestDamagedFileSystemIsNeverFormatted(t *testing.T) {
	for fsType, size := range map[string]int64{"ext4": 600, "xfs": 304, "btrfs": 128} {
		t.Run(fsType, func(t *testing.T) {
			b := newBench(t)
			b.created("v", size)
			b.use("v", fsType)
			random := rand.New(rand.NewPCG(1, uint64(size)))
			damages := append([]damage(nil), chosenDamages[fsType]...)
			for range randomDamages {
				damages = append(damages, randomDamage(random, size*megabytes))
			}
			refused := 0
			for i, d := range damages {
				refused += b.staysUnformatted(fmt.Sprintf("d%d", i), fsType, d)
			}
			t.Logf("%d of %d damages are refused", refused, len(damages))
		})
	}
}

// use formats a volume, writes a file, and leaves the volume unmounted.
func (b *bench) use(name, fsType string) {
	b.t.Helper()
	staging := b.path("staging")
	b.must(b.stage(name, fsType, staging))
	b.keep(staging, "the user's data")
	b.umount(staging)
}

// damagedCopy makes a damaged copy of the volume "v" that volume, until undo is called. A format then fails the test.
func (b *bench) damagedCopy(name string, d damage) (undo func()) {
	b.t.Helper()
	image, original, honest := b.path(name+".img"), b.devices["v"], b.tools
	b.run("cp", "--sparse=always", b.path("v.img"), image)
	device := b.run("losetup", "--find", "--show", image)
	b.devices["v"], b.tools = device, noFormat{honest, b.t}
	if d.noise {
		b.noise(device, d.at, d.length)
	} else {
		b.write(device, d.at, make([]byte, d.length))
	}
	return func() {
		b.devices["v"], b.tools = original, honest
		b.run("losetup", "--detach", device)
		b.must(os.Remove(image))
	}
}

// staysUnformatted damages a copy of the volume "v" and stages it. It returns 1 if the driver refuses that.
func (b *bench) staysUnformatted(name, fsType string, d damage) (refused int) {
	b.t.Helper()
	defer b.damagedCopy(name, d)()
	staging := b.path("again-" + name)
	err := b.stage("v", fsType, staging)
	if err == nil {
		b.umount(staging)
		return 0
	}
	if !repairs.MatchString(err.Error()) {
		b.t.Errorf("%s, %q, %d bytes at %d, noise %t: the message names no repair: %v", fsType, d.name, d.length, d.at, d.noise, err)
	} else if d.name != "" {
		b.t.Logf("%s, %s: %v", fsType, d.name, err)
	}
	return 1
}

// TestNamedRepairFindsTheData: the command in the message is the one that brings the file back.
func TestNamedRepairFindsTheData(t *testing.T) {
	b := newBench(t)
	device := b.created("v", 600)
	b.use("v", "ext4")
	b.write(device, 0, make([]byte, 64<<10))
	err := b.stage("v", "ext4", b.path("staging"))
	command := regexp.MustCompile(`e2fsck (-b \d+ -B \d+) ` + device).FindStringSubmatch(fmt.Sprint(err))
	if lvm.KindOf(err) != lvm.KindConflict || command == nil {
		t.Fatalf("got %v", err)
	}
	repair := []string{"-c", "e2fsck -y " + command[1] + " " + device + "; test $? -le 1"}
	b.run("sh", repair...)
	b.must(b.stage("v", "ext4", b.path("staging")))
	b.expectKept(b.path("staging"), "the user's data")
	b.umount(b.path("staging"))
}

// TestVolumesWithoutTag: an adopted volume that was never used gets its file system; one that was in use is not formatted as long as a copy of its
// superblock, or another structure, shows that.
func TestVolumesWithoutTag(t *testing.T) {
	for _, test := range []struct {
		fsType string
		size   int64
		damage damage
		words  string
	}{
		{"ext4", 600, damage{at: 0, length: 64 << 10}, "a copy of an ext4 superblock in block 32768 of 4096 bytes"},
		{"ext4", 64, damage{at: 1024, length: 1024}, "unknown kind"},
		{"ext4", 64, damage{at: 0, length: 64 << 10}, "a copy of an ext4 superblock in block 8193 of 1024 bytes"},
		{"xfs", 304, damage{at: 0, length: 4 << 10}, "an xfs structure"},
		{"xfs", 304, damage{at: 0, length: 1 << 20}, "the superblock of an xfs allocation group"},
		{"btrfs", 128, damage{at: 64<<10 + 64, length: 8}, "a mirror of a btrfs superblock"},
	} {
		t.Run(fmt.Sprintf("%s of %d MiB, %d bytes at %d", test.fsType, test.size, test.damage.length, test.damage.at), func(t *testing.T) {
			b := newBench(t)
			device := b.volume("v", test.size)
			b.use("v", test.fsType)
			b.write(device, test.damage.at, make([]byte, test.damage.length))
			if test.fsType == "ext4" && strings.Contains(test.words, "unknown") {
				b.refused(test.words, func() {}, func() error { return b.stage("v", test.fsType, b.path("staging")) })
				return
			}
			b.refused(test.words, b.digestBefore(), func() error { return b.stage("v", test.fsType, b.path("staging")) })
		})
	}
}
