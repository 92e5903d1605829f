//go:build reallvm

package lvmtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestUnresponsiveDisk_RealLVM: a group with an unresponsive disk delays one read briefly, keeps its last state, has no capacity and is
// reported; other groups are not affected, and the group works again when the disk answers.
func TestUnresponsiveDisk_RealLVM(t *testing.T) {
	b := realFixture(t).oneAtATime()
	const group, disk = "nodelvm-silent", "nodelvm-silent-disk"
	loop := makeDisk(t, "silent", 64)
	t.Cleanup(func() {
		tool(t, "losetup", "--detach", loop)
		must(t, os.Remove(filepath.Join("/dev/shm", realGroup+"-silent")))
	})
	tool(t, "dmsetup", "create", "--noudevsync", disk, "--table", "0 131072 linear "+loop+" 0")
	t.Cleanup(func() {
		tool(t, "dmsetup", "resume", disk)
		admin(t, "vgremove", "-ff", "-y", group)
		tool(t, "dmsetup", "remove", "--noudevsync", "--retry", disk)
	})
	admin(t, "vgcreate", "-y", "-s", "4m", group, mapped(t, disk))
	d := b.Start(t)
	spec := b.spec("on the silent disk", 8*lvm.MiB)
	spec.Class.Group = group
	v := d.create(t, spec)
	whole, err := d.Capacity(t.Context(), spec.Class)
	must(t, err)
	if whole.Available != 52*lvm.MiB {
		t.Errorf("capacity before: %+v", whole)
	}
	d.close(t)
	d = b.Start(t)
	tool(t, "dmsetup", "suspend", "--noflush", "--nolockfs", disk)
	timed := func(what string, most time.Duration, do func()) {
		t.Helper()
		began := time.Now()
		do()
		if took := time.Since(began); took > most {
			t.Errorf("%s took %v", what, took)
		}
	}
	timed("the first capacity", 8*time.Second, func() {
		if c := d.capacity(t, spec.Class); c != (lvm.Capacity{}) {
			t.Errorf("capacity of the group with the unresponsive disk: %+v", c)
		}
	})
	timed("ten capacities more", 25*time.Second, func() { // reads that wait for the disk take 30 s, three each
		for range 5 {
			if c := d.capacity(t, spec.Class); c != (lvm.Capacity{}) {
				t.Errorf("capacity of the group with the unresponsive disk: %+v", c)
			}
			if c := d.capacity(t, b.class()); c.Available == 0 {
				t.Error("another group has no capacity")
			}
		}
	})
	if got, err := d.Lookup(t.Context(), v.ID); err != nil || got != v {
		t.Errorf("the volume on it: %+v, %v", got, err)
	}
	findings, err := d.Health(t.Context())
	must(t, err)
	if len(findings) == 0 || findings[0].Type != lvm.ConditionDiskUnresponsive || !strings.Contains(findings[0].Text, "is unresponsive") {
		t.Errorf("findings %+v", findings)
	}
	other := d.create(t, b.spec("beside it", 8*lvm.MiB))
	must(t, d.Delete(t.Context(), other.ID))

	tool(t, "dmsetup", "resume", disk)
	deadline := time.Now().Add(time.Minute)
	for d.capacity(t, spec.Class) != whole {
		if time.Now().After(deadline) {
			t.Fatalf("capacity after: %+v, before %+v", d.capacity(t, spec.Class), whole)
		}
		time.Sleep(100 * time.Millisecond)
	}
	must(t, d.Delete(t.Context(), v.ID))
	d.waitWiped(t)
}

// TestKernelStatus_RealLVM: the driver parses the kernel's status of RAID volumes and pools.
func TestKernelStatus_RealLVM(t *testing.T) {
	b := realFixture(t).oneAtATime()
	d := b.Start(t)
	for _, layout := range []lvm.Layout{lvm.LayoutRAID1, lvm.LayoutRAID5, lvm.LayoutThin} {
		spec := b.spec(string(layout), 8*lvm.MiB)
		spec.Class = lvm.Class{Group: b.Group, Layout: layout}
		d.create(t, spec)
	}
	findings, err := d.Health(t.Context())
	if must(t, err); len(findings) > 0 {
		t.Errorf("findings %+v", findings)
	}
	for _, g := range d.Metrics().Groups {
		if string(g.Name) != b.Group {
			continue
		}
		if len(g.Pools) != 1 || g.Pools[0].MetadataUsed == 0 || g.Pools[0].MetadataUsed > g.Pools[0].MetadataSize || g.Pools[0].Promised != 8*lvm.MiB {
			t.Errorf("pools %+v", g.Pools)
		}
	}
	volumes, err := d.List(t.Context())
	must(t, err)
	for _, v := range volumes {
		if v.Class.Layout != lvm.LayoutRAID1 {
			continue
		}
		failLeg(t, v)
		findings, err := d.Health(t.Context())
		if must(t, err); !has(findings, lvm.ConditionVolumeDegraded, v.UUID) {
			t.Errorf("a leg has failed: %+v", findings)
		}
	}
}

// failLeg makes a mirror's second leg fail, and writes to it, since the kernel notices only then.
func failLeg(t testing.TB, v lvm.Volume) {
	t.Helper()
	name := strings.ReplaceAll(string(v.Group), "-", "--") + "-" + strings.ReplaceAll(v.ID.LV, "-", "--")
	leg := name + "_rimage_1"
	size := strings.Fields(tool(t, "dmsetup", "table", leg))[1]
	tool(t, "dmsetup", "suspend", "--noudevsync", leg)
	tool(t, "dmsetup", "load", leg, "--table", "0 "+size+" error")
	tool(t, "dmsetup", "resume", "--noudevsync", leg)
	tool(t, "dd", "if=/dev/zero", "of="+mapped(t, name), "bs=64k", "count=1", "oflag=direct")
}
