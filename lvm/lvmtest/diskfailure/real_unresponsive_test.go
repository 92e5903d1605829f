//go:build reallvm

package diskfailure

import (
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// TestUnresponsiveDisk_RealLVM: a group with an unresponsive disk delays one read briefly, keeps its last state, has no capacity and is
// reported; other groups are not affected, and the group works again when the disk answers.
func TestUnresponsiveDisk_RealLVM(t *testing.T) {
	b := reallvm.NewFixture(t).OneAtATime()
	const group, disk = "nodelvm-silent", "nodelvm-silent-disk"
	loop := reallvm.LoopDisk(t, "silent", 64)
	reallvm.Tool(t, "dmsetup", "create", "--noudevsync", disk, "--table", "0 131072 linear "+loop+" 0")
	t.Cleanup(func() {
		reallvm.Tool(t, "dmsetup", "resume", disk)
		reallvm.Admin(t, "vgremove", "-ff", "-y", group)
		reallvm.Tool(t, "dmsetup", "remove", "--noudevsync", "--retry", disk)
	})
	reallvm.Admin(t, "vgcreate", "-y", "-s", "4m", group, reallvm.Mapped(t, disk))
	d := b.Start(t)
	spec := b.Spec("on the silent disk", 8*lvm.MiB)
	spec.Class.Group = group
	v := d.MustCreate(t, spec)
	whole := d.MustCapacity(t, spec.Class)
	if whole.Available != 52*lvm.MiB {
		t.Errorf("capacity before: %+v", whole)
	}
	d.Stop(t)
	d = b.Start(t)
	reallvm.Tool(t, "dmsetup", "suspend", "--noflush", "--nolockfs", disk)
	timed := func(what string, most time.Duration, do func()) {
		t.Helper()
		began := time.Now()
		do()
		if took := time.Since(began); took > most {
			t.Errorf("%s took %v", what, took)
		}
	}
	timed("the first capacity", 8*time.Second, func() {
		if c := d.MustCapacity(t, spec.Class); c != (lvm.Capacity{}) {
			t.Errorf("capacity of the group with the unresponsive disk: %+v", c)
		}
	})
	timed("ten capacities more", 25*time.Second, func() { // reads that wait for the disk take 30 s, three each
		for range 5 {
			if c := d.MustCapacity(t, spec.Class); c != (lvm.Capacity{}) {
				t.Errorf("capacity of the group with the unresponsive disk: %+v", c)
			}
			if c := d.MustCapacity(t, b.Class()); c.Available == 0 {
				t.Error("another group has no capacity")
			}
		}
	})
	if got, err := d.Lookup(t.Context(), v.ID); err != nil || got != v {
		t.Errorf("the volume on it: %+v, %v", got, err)
	}
	findings := d.Conditions(t)
	if len(findings) == 0 || findings[0].Type != lvm.ConditionDiskUnresponsive || !strings.Contains(findings[0].Text, "is unresponsive") {
		t.Errorf("findings %+v", findings)
	}
	other := d.MustCreate(t, b.Spec("beside it", 8*lvm.MiB))
	hosttest.Must(t, d.Delete(t.Context(), other.ID))

	reallvm.Tool(t, "dmsetup", "resume", disk)
	wait.For(t, time.Minute, "the group has its capacity again", func() bool { return d.MustCapacity(t, spec.Class) == whole })
	d.MustRemove(t, v)
}

// TestKernelStatus_RealLVM: the driver parses the kernel's status of RAID volumes and pools.
func TestKernelStatus_RealLVM(t *testing.T) {
	b := reallvm.NewFixture(t).OneAtATime()
	d := b.Start(t)
	for _, layout := range []lvm.Layout{lvm.LayoutRAID1, lvm.LayoutRAID5, lvm.LayoutThin} {
		spec := b.Spec(string(layout), 8*lvm.MiB)
		spec.Class = lvm.Class{Group: b.Group, Layout: layout}
		d.MustCreate(t, spec)
	}
	findings := d.Conditions(t)
	if len(findings) > 0 {
		t.Errorf("findings %+v", findings)
	}
	for _, g := range hosttest.Report(d.Host).Groups {
		if string(g.Name) != b.Group {
			continue
		}
		if len(g.Pools) != 1 || g.Pools[0].MetadataUsed == 0 || g.Pools[0].MetadataUsed > g.Pools[0].MetadataSize || g.Pools[0].Provisioned != 8*lvm.MiB {
			t.Errorf("pools %+v", g.Pools)
		}
	}
	volumes := d.Volumes(t)
	for _, v := range volumes {
		if v.Class.Layout != lvm.LayoutRAID1 {
			continue
		}
		failLeg(t, v)
		findings := d.Conditions(t)
		if !hosttest.HasCondition(findings, lvm.ConditionVolumeDegraded, v.UUID) {
			t.Errorf("a leg has failed: %+v", findings)
		}
	}
}

// failLeg makes a mirror's second leg fail, and writes to it, since the kernel notices only then.
func failLeg(t testing.TB, v lvm.Volume) {
	t.Helper()
	name := strings.ReplaceAll(string(v.Group), "-", "--") + "-" + strings.ReplaceAll(v.ID.LV, "-", "--")
	leg := name + "_rimage_1"
	size := strings.Fields(reallvm.Tool(t, "dmsetup", "table", leg))[1]
	reallvm.Tool(t, "dmsetup", "suspend", "--noudevsync", leg)
	reallvm.Tool(t, "dmsetup", "load", leg, "--table", "0 "+size+" error")
	reallvm.Tool(t, "dmsetup", "resume", "--noudevsync", leg)
	reallvm.Tool(t, "dd", "if=/dev/zero", "of="+reallvm.Mapped(t, name), "bs=64k", "count=1", "oflag=direct")
}
