//go:build reallvm

package lvmtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node"
)

const preparedGroup = "nodelvm-prepared"

// loopDisk makes a disk of its own for a test.
func loopDisk(t testing.TB, name string, mebibytes int) string {
	t.Helper()
	disk := makeDisk(t, name, mebibytes)
	t.Cleanup(func() {
		detach(t, disk)
		must(t, os.Remove(filepath.Join("/dev/shm", realGroup+"-"+name)))
	})
	return disk
}

func prepare(t testing.TB, d *Driver, dryRun bool, declared ...lvm.Declaration) lvm.PrepareReport {
	t.Helper()
	report, err := d.Prepare(t.Context(), lvm.Preparation{Declared: declared, DryRun: dryRun, Signatures: node.Signatures})
	must(t, err)
	return report
}

// declare names devices one by one: loop devices are not taken otherwise.
func declare(disks ...string) lvm.Declaration {
	return lvm.Declaration{Name: preparedGroup, Tags: []string{"prepared"}, Devices: []lvm.Selector{{Paths: disks}}}
}

func toldOf(report lvm.PrepareReport, disk string) string {
	for _, d := range report.Devices {
		if d.Path == disk {
			return d.Text
		}
	}
	return ""
}

func removePrepared(t testing.TB, dir string) {
	admin(t, "vgremove", "-ff", "-y", preparedGroup)
	must(t, os.RemoveAll(filepath.Join(dir, "backup", preparedGroup)))
}

// members lists the disks of the prepared group.
func members(t testing.TB) (disks []string) {
	t.Helper()
	g, _ := groupNamed(readDisks(t), preparedGroup)
	for _, pv := range g.PVs {
		disks = append(disks, pv.Device)
	}
	return disks
}

func sameDisks(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// poke writes to a disk's file, past all tools.
func poke(t testing.TB, disk string, at int64, data []byte) {
	t.Helper()
	f, err := os.OpenFile(disk, os.O_WRONLY|os.O_SYNC, 0)
	must(t, err)
	_, err = f.WriteAt(data, at)
	must(t, err)
	must(t, f.Close())
}

// digest is a checksum of what is on a loop device: of its file, whose holes need not be read.
func digest(t testing.TB, disk string) string {
	t.Helper()
	device, err := os.Open(disk)
	must(t, err)
	must(t, device.Sync())
	must(t, device.Close())
	name, err := os.ReadFile("/sys/block/" + filepath.Base(disk) + "/loop/backing_file")
	must(t, err)
	f, err := os.Open(strings.TrimSpace(string(name)))
	must(t, err)
	defer func() { _ = f.Close() }()
	const seekData, seekHole = 3, 4 // lseek(2)
	hash, page, blank := sha256.New(), make([]byte, 4096), make([]byte, 4096)
	for end := int64(0); ; {
		at, err := f.Seek(end, seekData)
		if errors.Is(err, syscall.ENXIO) {
			return hex.EncodeToString(hash.Sum(nil))
		}
		must(t, err)
		end, err = f.Seek(at, seekHole)
		must(t, err)
		for ; at < end; at += int64(len(page)) {
			_, err := f.ReadAt(page, at)
			must(t, err)
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

// raidMember is the superblock of a Linux software RAID, version 1.2, which stands at byte 4096.
func raidMember() []byte {
	b := make([]byte, 256)
	binary.LittleEndian.PutUint32(b, 0xa92b4efc)
	binary.LittleEndian.PutUint32(b[4:], 1)
	copy(b[16:], "0123456789abcdef")
	binary.LittleEndian.PutUint64(b[144:], 8) // where it stands, in sectors
	sum := uint64(0)
	for i := 0; i < 256; i += 4 {
		sum += uint64(binary.LittleEndian.Uint32(b[i:]))
	}
	binary.LittleEndian.PutUint32(b[216:], uint32(sum)+uint32(sum>>32))
	return b
}

// dirt are the ways in which a disk is not to be taken: how it is made so, and the word that must be told of it.
var dirt = []struct {
	name, told string
	size       int // MiB
	make       func(t *testing.T, disk string)
}{
	{"mbr", "a partition table (dos)", 24, func(t *testing.T, disk string) { poke(t, disk, 0, mbr()) }},
	{"gpt", "a partition table (gpt)", 24, func(t *testing.T, disk string) { poke(t, disk, 0, gpt(24)) }},
	{"ext4", "type ext4", 24, func(t *testing.T, disk string) { tool(t, "mkfs.ext4", "-q", disk) }},
	{"xfs", "type xfs", 304, func(t *testing.T, disk string) { tool(t, "mkfs.xfs", "-q", disk) }},
	{"btrfs", "type btrfs", 120, func(t *testing.T, disk string) { tool(t, "mkfs.btrfs", "-q", disk) }},
	{"vfat", "type vfat", 24, func(t *testing.T, disk string) { poke(t, disk, 0, vfat()) }},
	{"luks", "crypto_LUKS", 24, func(t *testing.T, disk string) {
		key := filepath.Join(t.TempDir(), "key")
		must(t, os.WriteFile(key, []byte("secret"), 0o600))
		tool(t, "cryptsetup", "luksFormat", "-q", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", disk, key)
	}},
	{"group", "it belongs to volume group nodelvm-other", 24, func(t *testing.T, disk string) {
		admin(t, "vgcreate", "-y", "nodelvm-other", disk)
		t.Cleanup(func() { admin(t, "vgremove", "-ff", "-y", "nodelvm-other") })
	}},
	{"orphan", "a physical volume of LVM that is in no group", 24, func(t *testing.T, disk string) { admin(t, "pvcreate", "-y", disk) }},
	{"raid", "linux_raid_member", 24, func(t *testing.T, disk string) { poke(t, disk, 4096, raidMember()) }},
	{"swap", "swap", 24, func(t *testing.T, disk string) { tool(t, "mkswap", disk) }},
	{"swapping", "is swap space", 24, func(t *testing.T, disk string) {
		tool(t, "mkswap", disk)
		tool(t, "swapon", disk)
		t.Cleanup(func() { tool(t, "swapoff", disk) })
	}},
	{"mounted", "is mounted at ", 24, func(t *testing.T, disk string) {
		tool(t, "mkfs.ext4", "-q", disk)
		dir := t.TempDir()
		tool(t, "mount", "-o", "ro", disk, dir)
		t.Cleanup(func() { tool(t, "umount", dir) })
	}},
	{"held", "is a part of dm-", 24, func(t *testing.T, disk string) {
		tool(t, "dmsetup", "create", "--noudevsync", "nodelvm-holder", "--table", "0 2048 linear "+disk+" 0")
		t.Cleanup(func() { tool(t, "dmsetup", "remove", "--noudevsync", "--retry", "nodelvm-holder") })
	}},
	{"opened", "somebody has it in use", 24, func(t *testing.T, disk string) { // as a mount in a container that is not seen
		f, err := os.OpenFile(disk, os.O_RDONLY|exclusive, 0)
		must(t, err)
		t.Cleanup(func() { must(t, f.Close()) })
	}},
	{"read-only", "it is read-only", 24, func(t *testing.T, disk string) { tool(t, "blockdev", "--setro", disk) }},
	{"at-the-end", "data of an unknown kind (at byte 25165823)", 24, func(t *testing.T, disk string) { poke(t, disk, 24<<20-1, []byte{1}) }},
	{"in-front", "data of an unknown kind (at byte 777)", 24, func(t *testing.T, disk string) { poke(t, disk, 777, []byte{1}) }},
	{"tiny", "smaller than 16 MiB", 8, func(*testing.T, string) {}},
}

// TestPrepare_RealLVM: a disk that is not proven blank is left alone byte for byte, and it is told why; blank ones become
// the group, once; one that comes later is added.
func TestPrepare_RealLVM(t *testing.T) {
	dir := t.TempDir()
	d := newReal(t, dir, func(c *lvm.Config) { c.Cluster = "" })
	t.Cleanup(func() { d.close(t) })
	blank := []string{loopDisk(t, "blank0", 24), loopDisk(t, "blank1", 32)}
	zeroes := map[string]string{blank[0]: digest(t, blank[0]), blank[1]: digest(t, blank[1])}
	all := slices.Concat(blank, []string{"/dev/ubda"})
	dirty := map[string]string{} // device -> what is to be told of it
	before := map[string]string{}
	for _, way := range dirt {
		disk := loopDisk(t, way.name, way.size)
		way.make(t, disk)
		all, dirty[disk] = append(all, disk), way.told
	}
	dirty["/dev/ubda"] = "is mounted at /"
	for disk := range dirty {
		if disk != "/dev/ubda" {
			before[disk] = digest(t, disk)
		}
	}
	declared := declare(all...)
	check := func(report lvm.PrepareReport) {
		t.Helper()
		for disk, told := range dirty {
			if text := toldOf(report, disk); !strings.Contains(text, told) || strings.Contains(text, "made a part") {
				t.Errorf("%s: %q, want %q", disk, text, told)
			}
		}
		for disk, sum := range before {
			if digest(t, disk) != sum {
				t.Errorf("%s (%s) was changed", disk, dirty[disk])
			}
		}
	}
	dry := prepare(t, d, true, declared)
	t.Logf("dry run:\n%s", dry)
	if check(dry); len(members(t)) > 0 || !dry.Groups[0].Changed || dry.Groups[0].Text != "would be made of 2 devices" {
		t.Errorf("a dry run: %+v, group of %v", dry.Groups, members(t))
	}
	for _, disk := range blank {
		if digest(t, disk) != zeroes[disk] {
			t.Errorf("a dry run wrote to %s", disk)
		}
	}
	report := prepare(t, d, false, declared)
	t.Cleanup(func() { removePrepared(t, dir) })
	t.Logf("first run:\n%s", report)
	check(report)
	g, _ := groupNamed(readDisks(t), preparedGroup)
	if !sameDisks(members(t), blank) || len(report.Failed()) > 0 || !slices.Contains(g.Tags, "prepared") || g.ExtentSize != ExtentSize {
		t.Errorf("group of %v: %+v", members(t), report.Groups)
	}
	d.counted(t, "a second run", 0, func() {
		if again := prepare(t, d, false, declared); again.Groups[0].Changed || !sameDisks(members(t), blank) {
			t.Errorf("again: %+v", again.Groups)
		}
	})
	late := loopDisk(t, "late", 24)
	t.Cleanup(func() { admin(t, "vgreduce", preparedGroup, late) })
	declared.Devices[0].Paths, declared.Tags, declared.MaxDevices = append(all, late), append(declared.Tags, "more"), 2
	if report = prepare(t, d, false, declared); !strings.Contains(toldOf(report, late), "has the 2 devices that it may have") {
		t.Errorf("over the limit: %s", toldOf(report, late))
	}
	declared.MaxDevices = 3
	report = prepare(t, d, false, declared)
	check(report)
	g, _ = groupNamed(readDisks(t), preparedGroup)
	if !sameDisks(members(t), append(slices.Clone(blank), late)) || !slices.Contains(g.Tags, "more") || len(report.Failed()) > 0 {
		t.Errorf("a disk that came later: group of %v: %+v", members(t), report)
	}
}

// TestPrepareUnfinished_RealLVM: what an earlier run that was killed has left is finished, and nothing that somebody may
// have used is taken for that.
func TestPrepareUnfinished_RealLVM(t *testing.T) {
	dir := t.TempDir()
	d := newReal(t, dir, func(c *lvm.Config) { c.Cluster = "" })
	t.Cleanup(func() { d.close(t) })
	disk, second := loopDisk(t, "unfinished", 24), loopDisk(t, "unfinished2", 24)
	mark := func(disk, end string) {
		admin(t, "pvcreate", "-ff", "-y", "--norestorefile", "--uuid", "NodeLV-aaaa-bbbb-cccc-dddd-eeee-fffff"+end, disk)
	}
	finished := func(what string, want bool) {
		t.Helper()
		report := prepare(t, d, false, declare(disk))
		if got := sameDisks(members(t), []string{disk}); got != want || !want && !strings.Contains(toldOf(report, disk), "physical volume of LVM that is in no group") {
			t.Errorf("%s: group of %v, want it made: %v\n%s", what, members(t), want, report)
		}
		if want {
			removePrepared(t, dir)
		}
	}
	mark(disk, "1")
	finished("killed between pvcreate and vgcreate", true)
	finished("killed before vgcreate's commit", true) // its text stands there, and no header tells of it
	admin(t, "vgcreate", preparedGroup, disk)
	admin(t, "lvcreate", "-y", "-Wn", "-Zn", "-an", "-l1", "-n", "precious", preparedGroup)
	admin(t, "lvremove", "-y", preparedGroup)
	admin(t, "vgremove", preparedGroup)
	finished("a group that had volumes, removed", false)
	clear(t, disk)
	mark(disk, "2")
	admin(t, "vgcreate", "nodelvm-other", disk)
	admin(t, "vgremove", "nodelvm-other")
	finished("another group's, removed", false)
	clear(t, disk)
	finished("cleared", true)
	clear(t, disk)

	prepare(t, d, false, declare(disk))
	mark(second, "3")
	report := prepare(t, d, false, declare(disk, second))
	if want := []string{disk, second}; !sameDisks(members(t), want) {
		t.Errorf("killed between pvcreate and vgextend: group of %v\n%s", members(t), report)
	}
	admin(t, "vgremove", "-ff", "-y", preparedGroup)
	clear(t, disk)
	clear(t, second)
	report = prepare(t, d, false, declare(disk))
	if failed := report.Failed(); len(failed) != 1 || lvm.KindOf(failed[0].Err) != lvm.KindForeign || len(members(t)) > 0 {
		t.Errorf("a group that was there before is made anew: %s", report)
	}
	must(t, os.RemoveAll(filepath.Join(dir, "backup", preparedGroup)))
}

// clear makes a small disk blank.
func clear(t testing.TB, disk string) {
	t.Helper()
	poke(t, disk, 0, make([]byte, 2<<20))
	poke(t, disk, 22<<20, make([]byte, 2<<20))
}

// TestPrepareUnsuitable_RealLVM: a group that is not as LVM needs it is not touched.
func TestPrepareUnsuitable_RealLVM(t *testing.T) {
	dir := t.TempDir()
	d := newReal(t, dir, func(c *lvm.Config) { c.Cluster = "" })
	t.Cleanup(func() { d.close(t) })
	disk, more := loopDisk(t, "exported", 24), loopDisk(t, "unwanted", 24)
	admin(t, "vgcreate", preparedGroup, disk)
	admin(t, "vgexport", preparedGroup)
	before := digest(t, more)
	report := prepare(t, d, false, declare(disk, more))
	if failed := report.Failed(); len(failed) != 1 || !strings.Contains(failed[0].Err.Error(), "exported") || digest(t, more) != before {
		t.Errorf("an exported group: %s", report)
	}
	if text := toldOf(report, more); !strings.Contains(text, "takes nothing now") {
		t.Errorf("a blank disk for it: %q", text)
	}
	admin(t, "vgimport", preparedGroup)
	removePrepared(t, dir)
}

// TestPoolGrows_RealLVM: a pool that promises more than it holds is enlarged as it is written to; when its group is full
// nothing more is made in it, and it is told why; when there is room again it goes on.
func TestPoolGrows_RealLVM(t *testing.T) {
	dir := t.TempDir()
	d := startReal(t, dir)
	t.Cleanup(func() { d.close(t) })
	declared := declare(loopDisk(t, "growing", 128))
	declared.Pool = lvm.PoolPolicy{Size: 24 * lvm.MiB, GrowMetadata: 1}
	report := prepare(t, d, false, declared)
	if !strings.Contains(report.Groups[0].Text, "its thin pool nodelvm-thin has 24 MiB now") {
		t.Fatal(report)
	}
	t.Cleanup(func() { removePrepared(t, dir) })
	pool := func() lvm.PoolMetrics {
		for _, g := range d.Metrics().Groups {
			if g.Name == preparedGroup {
				return g.Pools[0]
			}
		}
		t.Fatal("no pool")
		return lvm.PoolMetrics{}
	}
	spec := func(name string, size lvm.Bytes) lvm.Spec {
		class := lvm.Class{Group: preparedGroup, Layout: lvm.LayoutThin, Overprovision: 200}
		return lvm.Spec{Name: name, Class: class, Required: size}
	}
	first := d.create(t, spec("first", 40*lvm.MiB))
	if p := pool(); p.Size != 24*lvm.MiB || p.Promised != 40*lvm.MiB || p.MetadataSize != 4*lvm.MiB {
		t.Errorf("at first %+v", p)
	}
	must(t, d.TendPools(t.Context()))
	if p := pool(); p.MetadataSize != 8*lvm.MiB || p.Grown != 1 {
		t.Errorf("with metadata in use over its limit: %+v", p)
	}
	declared.Pool.GrowMetadata = 0
	d.counted(t, "a look at pools that need nothing", 0, func() {
		prepare(t, d, false, declared)
		must(t, d.TendPools(t.Context()))
	})
	writeTo(t, d, first, 20*lvm.MiB)
	must(t, d.TendPools(t.Context()))
	if p := pool(); p.Size != 40*lvm.MiB || p.Used != 20*lvm.MiB || p.Grown != 2 {
		t.Errorf("with 20 of 24 MiB written: %+v", p)
	}
	second := d.create(t, spec("second", 120*lvm.MiB))
	writeTo(t, d, second, 70*lvm.MiB)
	must(t, d.TendPools(t.Context()))
	p := pool()
	t.Logf("the pool takes the whole group: %+v", p)
	if c := d.capacity(t, first.Class); c != (lvm.Capacity{}) {
		t.Errorf("the pool is nearly full, its group is, and its capacity is %+v", c)
	}
	refused := func(what string, err error, kind lvm.Kind) {
		t.Helper()
		if wantKind(t, what, err, kind); err != nil && (!strings.Contains(err.Error(), "is nearly full") || !strings.Contains(err.Error(), "0 B left")) {
			t.Errorf("%s: %v", what, err)
		} else {
			t.Logf("%s: %v", what, err)
		}
	}
	d.counted(t, "refusals", 0, func() {
		_, err := d.Create(t.Context(), spec("third", 4*lvm.MiB))
		refused("a volume more", err, lvm.KindNoRoom)
		_, err = d.CreateSnapshot(t.Context(), lvm.SnapshotSpec{Name: "snapshot", Source: first.ID})
		refused("a snapshot", err, lvm.KindNoRoom)
		_, err = d.Extend(t.Context(), first.ID, 44*lvm.MiB, 0)
		refused("an extension", err, lvm.KindOutOfRange)
	})
	findings, err := d.Health(t.Context())
	if must(t, err); len(findings) != 1 || findings[0].Trouble != lvm.TroublePoolNear || !strings.Contains(findings[0].Text, "no volume or snapshot is made any more") {
		t.Errorf("findings %+v", findings)
	}
	must(t, d.Delete(t.Context(), second.ID))
	d.waitWiped(t)
	third := d.create(t, spec("third", 4*lvm.MiB))
	for _, v := range []lvm.Volume{first, third} {
		must(t, d.Delete(t.Context(), v.ID))
	}
	d.waitWiped(t)
}

// writeTo writes to the beginning of a volume.
func writeTo(t testing.TB, d *Driver, v lvm.Volume, size lvm.Bytes) {
	t.Helper()
	path, err := d.Activate(context.Background(), v.ID, v.UUID)
	must(t, err)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	data := bytes.Repeat([]byte("nodelvm "), 1<<17)
	for at := lvm.Bytes(0); at < size; at += lvm.MiB {
		_, err = f.Write(data)
		must(t, err)
	}
	must(t, f.Sync())
	must(t, f.Close())
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

// exclusive is O_EXCL on a block device: for one alone.
const exclusive = syscall.O_EXCL
