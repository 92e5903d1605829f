package lvm

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fileDisk is a disk of so many bytes in a file, blank but for content in front.
func fileDisk(t *testing.T, size Bytes, content []byte) disk {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "disk")
	must(t, os.WriteFile(path, content, 0o600))
	must(t, os.Truncate(path, int64(size)))
	d := disk{blockDevice: blockDevice{name: "disk" + filepath.Base(dir), path: path, size: size, disk: true}}
	d.list(t)
	if p := (prober{positions: fileDisks(t), texts: &groupTexts{}}).probe(d.blockDevice, probe{}); p.label != nil {
		d.pv = &p
	}
	return d
}

// fileDisks are where the disks of a test are in sysfs.
func fileDisks(t *testing.T) positions {
	return positions{sys: filepath.Join(filepath.Dir(t.TempDir()), "sys")}
}

// list makes the disk's entry in sysfs, or another one in the place of the one that it had.
func (d *disk) list(t *testing.T) {
	t.Helper()
	entry := fileDisks(t).path(d.name)
	if exists(entry) {
		must(t, os.Rename(entry, entry+".gone")) // its inode stays in use
	}
	must(t, os.MkdirAll(entry, 0o755))
	var st unix.Stat_t
	must(t, unix.Lstat(entry, &st))
	d.inode = st.Ino
}

func (d disk) poke(t *testing.T, at int64, data string) {
	t.Helper()
	f, err := os.OpenFile(d.path, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte(data), at)
	must(t, err)
	must(t, f.Close())
}

// grip holds a disk that is a file.
func (d disk) grip(t *testing.T) *grip {
	t.Helper()
	f, err := openDirect(d.path, false)
	must(t, err)
	g := &grip{os.NewFile(uintptr(f.fd), d.path), f}
	t.Cleanup(g.release)
	return g
}

// nothingKnown stands for blkid and wipefs on what they do not know.
func nothingKnown(context.Context, string) ([]string, error) { return nil, nil }

// TestContent: what no tool knows is found at both ends, and where the first partition of a table that is gone begins.
func TestContent(t *testing.T) {
	const size = 16 * MiB
	if why := fileDisk(t, size, nil).grip(t).content(t.Context(), fileDisk(t, size, nil), nothingKnown); why != "" {
		t.Errorf("a blank disk: %s", why)
	}
	for name, at := range map[string]int64{
		"in front":                        777,
		"ext4 in the first partition":     1<<20 + 1080,
		"a file system of its own at 1 M": 1 << 20,
		"at the end":                      int64(size) - 1,
	} {
		d := fileDisk(t, size, nil)
		d.poke(t, at, "x")
		if why := d.grip(t).content(t.Context(), d, nothingKnown); !strings.Contains(why, "data of an unknown kind") || !strings.Contains(why, "blkdiscard -z ") {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// markedPV is the beginning of a physical volume as our pvcreate leaves it; flags are those of its metadata area.
func markedPV(flags uint32) []byte {
	const areaAt, areaSize = 4096, 2<<20 - 4096
	head := make([]byte, 8192)
	sector := head[sectorSize : 2*sectorSize]
	copy(sector, "LABELONE")
	binary.LittleEndian.PutUint64(sector[8:], 1)
	binary.LittleEndian.PutUint32(sector[20:], 32)
	copy(sector[24:], "LVM2 001")
	pv := sector[32:]
	copy(pv, strings.ReplaceAll(newPVUUID(), "-", ""))
	for at, value := range map[int]uint64{32: 16 << 20, 40: 2 << 20, 72: areaAt, 80: areaSize} {
		binary.LittleEndian.PutUint64(pv[at:], value)
	}
	binary.LittleEndian.PutUint32(sector[16:], lvmChecksum(sector[20:]))
	area := head[areaAt : areaAt+mdaHeaderSize]
	copy(area[4:], mdaMagic)
	binary.LittleEndian.PutUint32(area[20:], 1)
	binary.LittleEndian.PutUint64(area[24:], areaAt)
	binary.LittleEndian.PutUint64(area[32:], areaSize)
	binary.LittleEndian.PutUint32(area[60:], flags)
	binary.LittleEndian.PutUint32(area, lvmChecksum(area[4:]))
	return head
}

// TestUnfinished: a physical volume that bears our mark is taken up only if nothing else can ever have been written to it.
func TestUnfinished(t *testing.T) {
	const size = 16 * MiB
	fresh := fileDisk(t, size, markedPV(0))
	if fresh.pv == nil || !fresh.grip(t).unfinished(fresh, "vg", nil) {
		t.Fatalf("what an interrupted run has left is not taken up: %+v", fresh.pv)
	}
	for name, at := range map[string]int64{
		"a boot sector":                   100,
		"beside the label":                1500,
		"in the ring of metadata":         1 << 19,
		"where a first partition begins":  1 << 20,
		"a software RAID's header behind": int64(size) - 8192,
	} {
		d := fileDisk(t, size, markedPV(0))
		d.poke(t, at, "x")
		if d.pv == nil || d.grip(t).unfinished(d, "vg", nil) {
			t.Errorf("%s: it is taken for unused", name)
		}
	}
	// pvchange --metadataignore y: its group's metadata stand on other disks, which may be away.
	ignored := fileDisk(t, size, markedPV(ignoredArea))
	if ignored.pv == nil || ignored.grip(t).unfinished(ignored, "vg", nil) {
		t.Error("a member without metadata of its own is taken for unused")
	}
}

// TestForeignPV: nobody is told to remove a physical volume that is some group's.
func TestForeignPV(t *testing.T) {
	n := newTestNode(t)
	n.plug(t, "testdata/groups/linear")
	seen := 0
	for _, p := range n.probes(t) {
		if p.label == nil {
			continue
		}
		seen++
		if words := p.words(p.device.path); strings.Contains(words, "pvremove") || !strings.Contains(words, "volume group ") {
			t.Errorf("%s: %s", p.device.name, words)
		}
		p.areas, p.err = nil, errSilent
		if words := p.words(p.device.path); strings.Contains(words, "pvremove") {
			t.Errorf("%s, damaged: %s", p.device.name, words)
		}
		p.err = nil
		if words := p.words("/dev/x"); !strings.Contains(words, "in no group here") || !strings.Contains(words, "pvremove /dev/x") {
			t.Errorf("%s, an orphan: %s", p.device.name, words)
		}
	}
	if seen == 0 {
		t.Error("no physical volume was looked at")
	}
}

// TestLabelWaitsForNoGroup: the lock file of a group that another operation holds at the moment keeps no disk waiting: it
// would be waited for until the driver ends.
func TestLabelWaitsForNoGroup(t *testing.T) {
	dir := t.TempDir()
	held, err := lockFile(t.Context(), filepath.Join(dir, "nodelvm-vg.lock"))
	must(t, err)
	defer func() { _ = held.Close() }()
	runner := &oneRunner{}
	h := NewHostOn(Config{}, Machine{Runner: runner, Kernel: runner})
	h.commands.dir = dir
	p := &preparing{host: h, where: fileDisks(t), Preparation: Preparation{Signatures: nothingKnown}, told: map[string]string{}, blank: map[blockDevice]bool{}}
	ctx, cancel := context.WithTimeout(t.Context(), frozenPatience)
	defer cancel()
	d := fileDisk(t, 16*MiB, nil)
	if why := p.label(ctx, Declaration{Name: "vg"}, nil, d); why != "" || len(runner.argv) == 0 || runner.argv[0] != "pvcreate" {
		t.Errorf("%q; %q was run", why, runner.argv)
	}
	if len(runner.flushed) != 1 || runner.flushed[0] != d.path {
		t.Errorf("%q is flushed: after a power cut the group could miss the disk", runner.flushed)
	}
	if !runner.pinned {
		t.Error("while LVM begins, another device could get this one's name")
	}
	if h.commands.of(groupOf(runner.argv)) == nil {
		t.Error("a driver that comes after this one would not wait for its command")
	}
	if p.unpin(); isOpen(t, d.path) {
		t.Error("it stays open")
	}
}

// oneRunner keeps the last command, whether what it names at its end is open meanwhile, and what was flushed after it.
type oneRunner struct {
	Kernel
	argv    []string
	pinned  bool
	flushed []string
}

func (r *oneRunner) Sync(paths []string) error {
	r.flushed = paths
	return nil
}

func (r *oneRunner) Run(_ context.Context, argv []string) ([]byte, error) {
	r.argv = argv
	var err error
	r.pinned, err = opened(argv[len(argv)-1])
	return nil, err
}

// opened tells whether this process has a file open.
func opened(path string) (bool, error) {
	open, err := filepath.Glob("/proc/self/fd/*")
	for _, fd := range open {
		if to, err := os.Readlink(fd); err == nil && to == path {
			return true, nil
		}
	}
	return false, err
}

func isOpen(t *testing.T, path string) bool {
	t.Helper()
	is, err := opened(path)
	must(t, err)
	return is
}

// TestTakeOneBlockSize: LVM refuses all disks at once if their blocks differ; one is left alone, the others are taken.
func TestTakeOneBlockSize(t *testing.T) {
	blocks := func(size Bytes, group string) disk {
		d := fileDisk(t, 16*MiB, nil)
		d.block, d.group = size, group
		return d
	}
	for name, c := range map[string]struct {
		disks []disk
		taken int
		words string // of the last one
	}{
		"a new group":                {[]disk{blocks(512, ""), blocks(512, ""), blocks(4096, "")}, 2, "its blocks have 4 KiB, those of volume group vg 512 B"},
		"one more for a group":       {[]disk{blocks(4096, "vg"), blocks(4096, ""), blocks(512, "")}, 1, "its blocks have 512 B"},
		"another group":              {[]disk{blocks(512, "other"), blocks(4096, "")}, 1, "would become a part"},
		"a group with both":          {[]disk{blocks(4096, "vg"), blocks(512, "vg"), blocks(512, "")}, 1, "would become a part"},
		"where that cannot be known": {[]disk{blocks(512, ""), blocks(0, "")}, 2, "would become a part"},
	} {
		runner := &oneRunner{}
		p := &preparing{host: NewHostOn(Config{}, Machine{Runner: runner, Kernel: runner}), where: fileDisks(t), Preparation: Preparation{Signatures: nothingKnown},
			disks: c.disks, told: map[string]string{}, blank: map[blockDevice]bool{}}
		taken := p.take(t.Context(), Declaration{Name: "vg", Devices: []Selector{{MinSize: MiB}}}, nil, nil)
		if told := p.told[c.disks[len(c.disks)-1].path]; len(taken) != c.taken || !strings.Contains(told, c.words) {
			t.Errorf("%s: %d are taken, want %d; the last one %q", name, len(taken), c.taken, told)
		}
	}
}

// TestLabelTwice: who looks again and again takes no disk at first sight, and none that has taken another's place.
func TestLabelTwice(t *testing.T) {
	runner := &oneRunner{}
	h := NewHostOn(Config{}, Machine{Runner: runner, Kernel: runner})
	d := fileDisk(t, 16*MiB, nil)
	look := func(d disk) string {
		p := &preparing{host: h, where: fileDisks(t), Preparation: Preparation{Twice: true, Signatures: nothingKnown}, blank: map[blockDevice]bool{}}
		why := p.label(t.Context(), Declaration{Name: "vg"}, nil, d)
		h.blank = p.blank
		return why
	}
	var other disk
	for again := range 2 {
		seen := d
		if again > 0 {
			seen.list(t) // the same path and number, another device
			other = seen
		}
		if why := look(seen); !strings.Contains(why, "looked at again") || runner.argv != nil {
			t.Errorf("at first sight: %q; %q was run", why, runner.argv)
		}
	}
	if why := look(other); why != "" || len(runner.argv) == 0 {
		t.Errorf("at second sight: %q; %q was run", why, runner.argv)
	}
}
