package prepare

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/accepted"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/ondisk"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// TestLabelWaitsForNoGroup: the lock file of a group on which another operation works delays no disk: the driver would wait for
// it until it ends.
func TestLabelWaitsForNoGroup(t *testing.T) {
	dir := t.TempDir()
	held, err := lvmcmd.LockFile(t.Context(), filepath.Join(dir, "nodelvm-vg.lock"))
	fixture.Must(t, err)
	defer func() { _ = held.Close() }()
	runner := &oneRunner{}
	preparer := preparerOn(lvm.Machine{Runner: runner, Kernel: runner})
	preparer.engine.Commands.Dir = dir
	p := &preparing{held: map[string]string{}, Preparer: preparer, where: ondisk.Positions{Sys: fixture.DiskSys(t)}, Preparation: lvm.Preparation{Signatures: noSignatures}, reports: map[string]string{}, blank: map[ondisk.BlockDevice]bool{}}
	ctx, cancel := context.WithTimeout(t.Context(), dm.FrozenPatience)
	defer cancel()
	d := blankDisk(t, 16*lvm.MiB)
	if why := p.label(ctx, lvm.Declaration{Name: "vg"}, nil, d); why != "" || len(runner.argv) == 0 || runner.argv[0] != "pvcreate" {
		t.Errorf("why = %q; argv = %q", why, runner.argv)
	}
	if len(runner.flushed) != 1 || runner.flushed[0] != d.Path {
		t.Errorf("flushed %q: after a power cut the group could lack the disk", runner.flushed)
	}
	if !runner.pinned {
		t.Error("another device could get the disk's name before LVM opens it")
	}
	if preparer.engine.Commands.Of(lvmcmd.GroupOf(runner.argv)) == nil {
		t.Error("the next driver would not wait for this driver's command")
	}
	if p.unpin(); fixture.IsOpen(t, d.Path) {
		t.Error("the device stays open")
	}
}

// TestTakeFlushes: the label of an interrupted run may not have reached its disk yet.
func TestTakeFlushes(t *testing.T) {
	runner := &oneRunner{}
	p := &preparing{Preparer: preparerOn(lvm.Machine{Runner: runner, Kernel: runner})}
	d := blankDisk(t, 16*lvm.MiB)
	if why := p.take(t.Context(), d, true); why != "" || runner.argv != nil || !slices.Equal(runner.flushed, []string{d.Path}) {
		t.Errorf("%q; ran %q, flushed %q", why, runner.argv, runner.flushed)
	}
}

// TestLabelIsRecordedFirst: the node's record names the physical volume before it exists, so that an interrupted run is continued.
func TestLabelIsRecordedFirst(t *testing.T) {
	runner, record := &oneRunner{}, &accepted.Record{File: filepath.Join(t.TempDir(), "accepted.json")}
	preparer := preparerOn(lvm.Machine{Runner: runner, Kernel: runner})
	preparer.record = &ondisk.Disks{Sys: fixture.DiskSys(t), Accepted: record}
	label := func() string {
		p := &preparing{held: map[string]string{}, Preparer: preparer, where: ondisk.Positions{Sys: fixture.DiskSys(t)}, Preparation: lvm.Preparation{Signatures: noSignatures}, reports: map[string]string{}, blank: map[ondisk.BlockDevice]bool{}}
		return p.label(t.Context(), lvm.Declaration{Name: "vg"}, nil, blankDisk(t, 16*lvm.MiB))
	}
	why := label()
	if why != "" {
		t.Fatal(why)
	}
	uuid := runner.argv[slices.Index(runner.argv, "--uuid")+1]
	if e := record.Entries(); len(e) != 1 || e[0].PV != uuid || e[0].Reason != accepted.Prepared {
		t.Errorf("of %s the record has %+v", uuid, e)
	}
	runner.argv, record.File = nil, filepath.Join(t.TempDir(), "absent", "accepted.json")
	if why := label(); !strings.Contains(why, "cannot record") || runner.argv != nil {
		t.Errorf("without a record: %q, ran %q", why, runner.argv)
	}
}

// TestLabelRecordsADiskOnce: a disk that LVM refuses at each scan does not fill the node's record, which drops what it has had longest. A disk that became a
// physical volume, and is blank again, becomes another one.
func TestLabelRecordsADiskOnce(t *testing.T) {
	runner, record := &oneRunner{failure: errors.New("write error")}, &accepted.Record{File: filepath.Join(t.TempDir(), "accepted.json")}
	preparer := preparerOn(lvm.Machine{Runner: runner, Kernel: runner})
	preparer.record = &ondisk.Disks{Sys: fixture.DiskSys(t), Accepted: record}
	d := blankDisk(t, 16*lvm.MiB)
	label := func() (uuid, why string) {
		p := &preparing{held: map[string]string{}, Preparer: preparer, where: ondisk.Positions{Sys: fixture.DiskSys(t)}, Preparation: lvm.Preparation{Signatures: noSignatures}, reports: map[string]string{}, blank: map[ondisk.BlockDevice]bool{}}
		why = p.label(t.Context(), lvm.Declaration{Name: "vg"}, nil, d)
		return runner.argv[slices.Index(runner.argv, "--uuid")+1], why
	}
	for range 3 {
		uuid, why := label()
		if e := record.Entries(); !strings.Contains(why, "LVM refused it") || len(e) != 1 || e[0].PV != uuid {
			t.Errorf("the record has %+v, LVM ran %q, and why = %q", e, runner.argv, why)
		}
	}
	runner.failure = nil
	first, _ := label()
	if second, _ := label(); second == first {
		t.Errorf("both physical volumes are %s", first)
	}
}

// preparerOn returns a preparer on a machine.
func preparerOn(machine lvm.Machine) *Preparer {
	tasks := oplock.NewTasks()
	return New(engine.New(lvm.Config{}, machine, tasks), tasks, nil, &ondisk.Disks{})
}

// oneRunner records the last command, whether the device in its last argument is open meanwhile, and what was flushed after it.
type oneRunner struct {
	lvm.Kernel
	argv    []string
	pinned  bool
	flushed []string
	failure error // of the command
}

func (r *oneRunner) Sync(paths []string) error {
	r.flushed = paths
	return nil
}

func (r *oneRunner) Run(_ context.Context, argv []string) ([]byte, error) {
	r.argv = argv
	var err error
	r.pinned, err = fixture.Opened(argv[len(argv)-1])
	return nil, cmp.Or(r.failure, err)
}

// TestLabelDisksOfOneBlockSize: LVM refuses all disks at once if their block sizes differ; the driver ignores one and takes the others.
func TestLabelDisksOfOneBlockSize(t *testing.T) {
	blocks := func(size lvm.Bytes, group lvm.VGName) ondisk.Disk {
		d := blankDisk(t, 16*lvm.MiB)
		d.Block, d.Group = size, group
		return d
	}
	for name, c := range map[string]struct {
		disks []ondisk.Disk
		taken int
		words string // of the last disk
	}{
		"a new group":          {[]ondisk.Disk{blocks(512, ""), blocks(512, ""), blocks(4096, "")}, 2, "its blocks have 4 KiB, those of volume group vg 512 B"},
		"one more for a group": {[]ondisk.Disk{blocks(4096, "vg"), blocks(4096, ""), blocks(512, "")}, 1, "its blocks have 512 B"},
		"another group":        {[]ondisk.Disk{blocks(512, "other"), blocks(4096, "")}, 1, "would be added to"},
		"a group with both":    {[]ondisk.Disk{blocks(4096, "vg"), blocks(512, "vg"), blocks(512, "")}, 1, "would be added to"},
		"unknown block size":   {[]ondisk.Disk{blocks(512, ""), blocks(0, "")}, 2, "would be added to"},
	} {
		runner := &oneRunner{}
		p := &preparing{held: map[string]string{}, Preparer: preparerOn(lvm.Machine{Runner: runner, Kernel: runner}), where: ondisk.Positions{Sys: fixture.DiskSys(t)}, Preparation: lvm.Preparation{Signatures: noSignatures},
			disks: c.disks, reports: map[string]string{}, blank: map[ondisk.BlockDevice]bool{}}
		taken := p.labelSelected(t.Context(), lvm.Declaration{Name: "vg", Devices: []lvm.Selector{{MinSize: lvm.MiB}}}, nil, nil)
		if told := p.reports[c.disks[len(c.disks)-1].Path]; len(taken) != c.taken || !strings.Contains(told, c.words) {
			t.Errorf("%s: %d taken, want %d; the last one %q", name, len(taken), c.taken, told)
		}
	}
}

// TestLabelNeedsStableScan: with RequireStableScan a disk needs two blank scans, and so does one that replaces it.
func TestLabelNeedsStableScan(t *testing.T) {
	runner := &oneRunner{}
	preparer := preparerOn(lvm.Machine{Runner: runner, Kernel: runner})
	d := blankDisk(t, 16*lvm.MiB)
	look := func(d ondisk.Disk) string {
		p := &preparing{held: map[string]string{}, Preparer: preparer, where: ondisk.Positions{Sys: fixture.DiskSys(t)}, Preparation: lvm.Preparation{RequireStableScan: true, Signatures: noSignatures}, blank: map[ondisk.BlockDevice]bool{}}
		why := p.label(t.Context(), lvm.Declaration{Name: "vg"}, nil, d)
		preparer.blank = p.blank
		return why
	}
	var other ondisk.Disk
	for again := range 2 {
		seen := d
		if again > 0 {
			seen.Inode = fixture.ListDisk(t, seen.Name) // the same path and number, another device
			other = seen
		}
		if why := look(seen); !strings.Contains(why, "still blank at the next scan") || runner.argv != nil {
			t.Errorf("first scan: %q; argv = %q", why, runner.argv)
		}
	}
	if why := look(other); why != "" || len(runner.argv) == 0 {
		t.Errorf("second scan: %q; argv = %q", why, runner.argv)
	}
}

// blankDisk is a blank disk in a file.
func blankDisk(t *testing.T, size lvm.Bytes) ondisk.Disk {
	t.Helper()
	name, path := fixture.DiskFile(t, size, nil)
	return ondisk.Disk{BlockDevice: ondisk.BlockDevice{Name: name, Path: path, Size: size, Disk: true, Inode: fixture.ListDisk(t, name)}}
}

// noSignatures replaces blkid and wipefs on a disk without a signature.
func noSignatures(context.Context, string) ([]string, error) { return nil, nil }
