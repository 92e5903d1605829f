//go:build reallvm

package prepare

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
	"github.com/nodelvm/nodelvm/node/filesystem"
)

const preparedGroup = "nodelvm-prepared"

func prepare(t testing.TB, d *hosttest.Driver, dryRun bool, declared ...lvm.Declaration) lvm.PrepareReport {
	t.Helper()
	report, err := d.Prepare(t.Context(), lvm.Preparation{Declared: declared, DryRun: dryRun, Signatures: filesystem.ListSignatures})
	hosttest.Must(t, err)
	return report
}

// declare names devices one by one: Prepare ignores loop devices otherwise.
func declare(disks ...string) lvm.Declaration {
	return lvm.Declaration{Name: preparedGroup, Tags: []string{"prepared"}, Devices: []lvm.Selector{{Paths: disks}}}
}

// namesAll reports whether an error names each device with its reason.
func namesAll(err error, devices map[string]string) bool {
	for device, why := range devices {
		if text := err.Error(); !strings.Contains(text, device+": ") || !strings.Contains(text, why) {
			return false
		}
	}
	return true
}

func reportOn(report lvm.PrepareReport, disk string) string {
	for _, d := range report.Devices {
		if d.Path == disk {
			return d.Text
		}
	}
	return ""
}

func removePrepared(t testing.TB, dir string) {
	reallvm.Admin(t, "vgremove", "-ff", "-y", preparedGroup)
	hosttest.Must(t, os.RemoveAll(filepath.Join(dir, "backup", preparedGroup)))
}

// members lists the disks of the prepared group.
func members(t testing.TB) (disks []string) {
	t.Helper()
	g, _ := reallvm.FindGroup(reallvm.ReadDisks(t), preparedGroup)
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

// TestPrepare_RealLVM: Prepare changes no byte of a disk that is not proven blank, and reports why; it creates the group from
// the blank ones, once, and adds a blank one that appears later.
func TestPrepare_RealLVM(t *testing.T) {
	dir := t.TempDir()
	d := reallvm.NewDriver(t, dir, func(c *lvm.Config) { c.Cluster = "" })
	t.Cleanup(func() { d.Stop(t) })
	root, err := filepath.EvalSymlinks("/dev/root") // the lab's link
	hosttest.Must(t, err)
	blank := []string{reallvm.LoopDisk(t, "blank0", 24), reallvm.LoopDisk(t, "blank1", 32)}
	zeroes := map[string]string{blank[0]: digest(t, blank[0]), blank[1]: digest(t, blank[1])}
	all := slices.Concat(blank, []string{root})
	dirty := map[string]string{} // device -> a part of its report
	before := map[string]string{}
	for _, way := range dirt {
		disk := reallvm.LoopDisk(t, way.name, way.size)
		way.make(t, disk)
		all, dirty[disk] = append(all, disk), way.report
	}
	dirty[root] = "is mounted at /"
	for disk := range dirty {
		if disk != root {
			before[disk] = digest(t, disk)
		}
	}
	declared := declare(all...)
	check := func(report lvm.PrepareReport, others ...string) {
		t.Helper()
		for disk, want := range dirty {
			text := reportOn(report, disk)
			expected := slices.ContainsFunc(append(others, want), func(part string) bool { return strings.Contains(text, part) })
			if !expected || strings.Contains(text, "added to volume group") {
				t.Errorf("%s: %q, want %q", disk, text, want)
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
	if check(dry); len(members(t)) > 0 || !dry.Groups[0].Changed || dry.Groups[0].Text != "would be created from 2 devices" {
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
	g, _ := reallvm.FindGroup(reallvm.ReadDisks(t), preparedGroup)
	if !sameDisks(members(t), blank) || !slices.Contains(g.Tags, "prepared") || g.ExtentSize != lvmtest.ExtentSize {
		t.Errorf("group of %v: %+v", members(t), report.Groups)
	}
	if failed := report.Failed(); len(failed) != 1 || !namesAll(failed[0].Err, dirty) {
		t.Errorf("%v does not name each device that is not blank: %v", failed, dirty)
	}
	d.Counted(t, "a second run", 0, func() {
		if again := prepare(t, d, false, declared); again.Groups[0].Changed || !sameDisks(members(t), blank) {
			t.Errorf("second run: %+v", again.Groups)
		}
	})
	late := reallvm.LoopDisk(t, "late", 24)
	t.Cleanup(func() { reallvm.Admin(t, "vgreduce", preparedGroup, late) })
	declared.Devices[0].Paths, declared.Tags, declared.MaxDevices = append(all, late), append(declared.Tags, "more"), 2
	if report = prepare(t, d, false, declared); !strings.Contains(reportOn(report, late), "already has 2 devices (maxDevices)") {
		t.Errorf("over the limit: %s", reportOn(report, late))
	}
	declared.MaxDevices = 3
	report = prepare(t, d, false, declared)
	check(report, "already has 3 devices (maxDevices)") // disks whose names come after late's: Prepare need not read them
	g, _ = reallvm.FindGroup(reallvm.ReadDisks(t), preparedGroup)
	if !sameDisks(members(t), append(slices.Clone(blank), late)) || !slices.Contains(g.Tags, "more") {
		t.Errorf("a disk that appeared later: group of %v: %+v", members(t), report)
	}
}

// TestPrepareUnfinished_RealLVM: Prepare completes what an earlier run that was killed left, and does not mistake a disk that
// may have been used for that.
func TestPrepareUnfinished_RealLVM(t *testing.T) {
	dir := t.TempDir()
	d := reallvm.NewDriver(t, dir, func(c *lvm.Config) { c.Cluster = "" })
	t.Cleanup(func() { d.Stop(t) })
	disk, second := reallvm.LoopDisk(t, "unfinished", 24), reallvm.LoopDisk(t, "unfinished2", 24)
	mark := func(disk, end string) {
		reallvm.Admin(t, "pvcreate", "-ff", "-y", "--norestorefile", "--uuid", "NodeLV-aaaa-bbbb-cccc-dddd-eeee-fffff"+end, disk)
	}
	finished := func(what string, want bool) {
		t.Helper()
		report := prepare(t, d, false, declare(disk))
		if got := sameDisks(members(t), []string{disk}); got != want || !want && !strings.Contains(reportOn(report, disk), "physical volume of LVM that is in no group") {
			t.Errorf("%s: group of %v, want it created: %v\n%s", what, members(t), want, report)
		}
		if want {
			removePrepared(t, dir)
		}
	}
	mark(disk, "1")
	finished("killed between pvcreate and vgcreate", true)
	finished("killed before vgcreate's commit", true) // its text is on the disk, but no header refers to it
	reallvm.Admin(t, "vgcreate", preparedGroup, disk)
	reallvm.Admin(t, "lvcreate", "-y", "-Wn", "-Zn", "-an", "-l1", "-n", "precious", preparedGroup)
	reallvm.Admin(t, "lvremove", "-y", preparedGroup)
	reallvm.Admin(t, "vgremove", preparedGroup)
	finished("a group that had volumes, removed", false)
	clear(t, disk)
	mark(disk, "2")
	reallvm.Admin(t, "vgcreate", "nodelvm-other", disk)
	reallvm.Admin(t, "vgremove", "nodelvm-other")
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
	reallvm.Admin(t, "vgreduce", preparedGroup, second)
	if report = prepare(t, d, false, declare(disk, second)); !sameDisks(members(t), []string{disk}) {
		t.Errorf("removed by an admin: group of %v\n%s", members(t), report)
	}
	reallvm.Admin(t, "vgremove", "-ff", "-y", preparedGroup)
	clear(t, disk)
	clear(t, second)
	report = prepare(t, d, false, declare(disk))
	if failed := report.Failed(); len(failed) != 1 || lvm.KindOf(failed[0].Err) != lvm.KindConflict || len(members(t)) > 0 {
		t.Errorf("a group that existed before is created again: %s", report)
	}
	hosttest.Must(t, os.RemoveAll(filepath.Join(dir, "backup", preparedGroup)))
}

// clear makes a small disk blank.
func clear(t testing.TB, disk string) {
	t.Helper()
	poke(t, disk, 0, make([]byte, 2<<20))
	poke(t, disk, 22<<20, make([]byte, 2<<20))
}

// TestPrepareUnsuitable_RealLVM: Prepare does not change a group that LVM cannot use.
func TestPrepareUnsuitable_RealLVM(t *testing.T) {
	dir := t.TempDir()
	d := reallvm.NewDriver(t, dir, func(c *lvm.Config) { c.Cluster = "" })
	t.Cleanup(func() { d.Stop(t) })
	disk, more := reallvm.LoopDisk(t, "exported", 24), reallvm.LoopDisk(t, "unwanted", 24)
	reallvm.Admin(t, "vgcreate", preparedGroup, disk)
	reallvm.Admin(t, "vgexport", preparedGroup)
	before := digest(t, more)
	report := prepare(t, d, false, declare(disk, more))
	if failed := report.Failed(); len(failed) != 1 || !strings.Contains(failed[0].Err.Error(), "exported") || digest(t, more) != before {
		t.Errorf("an exported group: %s", report)
	}
	if text := reportOn(report, more); !strings.Contains(text, "cannot be extended now") {
		t.Errorf("a blank disk for it: %q", text)
	}
	reallvm.Admin(t, "vgimport", preparedGroup)
	removePrepared(t, dir)
}
