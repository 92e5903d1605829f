package lvm

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
)

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
	p := &preparing{host: h, where: positions{sys: diskSys(t)}, Preparation: Preparation{Signatures: noSignatures}, told: map[string]string{}, blank: map[blockDevice]bool{}}
	ctx, cancel := context.WithTimeout(t.Context(), frozenPatience)
	defer cancel()
	d := blankDisk(t, 16*MiB)
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

// TestTakeOneBlockSize: LVM refuses all disks at once if their blocks differ; one is left alone, the others are taken.
func TestTakeOneBlockSize(t *testing.T) {
	blocks := func(size Bytes, group string) disk {
		d := blankDisk(t, 16*MiB)
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
		p := &preparing{host: NewHostOn(Config{}, Machine{Runner: runner, Kernel: runner}), where: positions{sys: diskSys(t)}, Preparation: Preparation{Signatures: noSignatures},
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
	d := blankDisk(t, 16*MiB)
	look := func(d disk) string {
		p := &preparing{host: h, where: positions{sys: diskSys(t)}, Preparation: Preparation{Twice: true, Signatures: noSignatures}, blank: map[blockDevice]bool{}}
		why := p.label(t.Context(), Declaration{Name: "vg"}, nil, d)
		h.blank = p.blank
		return why
	}
	var other disk
	for again := range 2 {
		seen := d
		if again > 0 {
			seen.inode = listDisk(t, seen.name) // the same path and number, another device
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

// blankDisk is a blank disk in a file.
func blankDisk(t *testing.T, size Bytes) disk {
	t.Helper()
	name, path := diskFile(t, size, nil)
	return disk{blockDevice: blockDevice{name: name, path: path, size: size, disk: true, inode: listDisk(t, name)}}
}

// noSignatures stands for blkid and wipefs on a disk without a signature.
func noSignatures(context.Context, string) ([]string, error) { return nil, nil }
