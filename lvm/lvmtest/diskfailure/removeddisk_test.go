package diskfailure

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// replaceDevices removes the disks of an LV and its parts while they are active, and adds them again as other devices.
func replaceDevices(t *testing.T, node *lvmtest.Node, lvs ...string) {
	t.Helper()
	g := node.Group("vg-test")
	replaced := 0
	for i, pv := range g.PVs {
		if slices.ContainsFunc(lvs, func(lv string) bool { return hosttest.FindLV(t, g, lv).Segments[0].Areas[0].PV == pv.UUID }) {
			node.ReplaceDevice("vg-test", i, pv.Device+"-back")
			replaced++
		}
	}
	if replaced == 0 {
		t.Fatalf("%v are on no disk", lvs)
	}
}

// onRemovedDisk waits until Health reports the condition of a volume, or no longer does.
func onRemovedDisk(t *testing.T, d *hosttest.Driver, kind lvm.ConditionType, v lvm.Volume, want bool) {
	t.Helper()
	wait.For(t, time.Minute, fmt.Sprintf("%s of %s becomes %v", kind, v.ID.LV, want), func() bool {
		return hosttest.HasCondition(d.Conditions(t), kind, v.UUID) == want
	})
}

// ran counts the commands that have this option.
func ran(node *lvmtest.Node, option string) (n int) {
	for _, c := range node.Commands() {
		if slices.Contains(c.Args, option) {
			n++
		}
	}
	return n
}

// TestRemovedDiskIsBack: a disk was removed while volumes on it were active, and is back as another device. The driver makes the
// volumes map it: a RAID volume at once, any other when it is unused; a condition reports one that is in use.
func TestRemovedDiskIsBack(t *testing.T) {
	start := func(t *testing.T, layout lvm.Layout, names ...string) (node *lvmtest.Node, d *hosttest.Driver, volumes []lvm.Volume, paths []string) {
		node, b, d := hosttest.Started(t)
		for _, name := range names {
			spec := b.Spec(name, 8*lvm.MiB)
			if spec.Class = b.In(lvm.Class{Layout: layout}); layout == lvm.LayoutThin {
				spec = b.Thin(name, 8*lvm.MiB, lvm.ID{})
			}
			v := d.MustCreate(t, spec)
			path := d.MustActivate(t, v)
			volumes, paths = append(volumes, v), append(paths, path)
		}
		return node, d, volumes, paths
	}
	t.Run("linear, unused", func(t *testing.T) {
		node, d, v, _ := start(t, lvm.LayoutLinear, "a")
		replaceDevices(t, node, v[0].ID.LV)
		d.MustActivate(t, v[0])
		onRemovedDisk(t, d, lvm.ConditionVolumeOnRemovedDisk, v[0], false)
		if ran(node, "-an") != 1 {
			t.Errorf("%d deactivations", ran(node, "-an"))
		}
	})
	t.Run("linear, in use", func(t *testing.T) {
		node, d, v, paths := start(t, lvm.LayoutLinear, "a")
		release := node.Hold(paths[0])
		replaceDevices(t, node, v[0].ID.LV)
		onRemovedDisk(t, d, lvm.ConditionVolumeOnRemovedDisk, v[0], true)
		d.MustActivate(t, v[0]) // its file system is still mounted for another pod
		if ran(node, "-an") != 0 {
			t.Error("the driver deactivates a volume in use")
		}
		release()
		d.MustActivate(t, v[0])
		onRemovedDisk(t, d, lvm.ConditionVolumeOnRemovedDisk, v[0], false)
	})
	t.Run("RAID, in use", func(t *testing.T) {
		node, d, v, paths := start(t, lvm.LayoutRAID1, "a")
		defer node.Hold(paths[0])()
		replaceDevices(t, node, v[0].ID.LV+"_rimage_0")
		wait.For(t, time.Minute, "the driver refreshes the volume", func() bool {
			d.MustCapacity(t, v[0].Class) // as csi-provisioner does: a read shows the disk
			return ran(node, "--refresh") > 0
		})
		onRemovedDisk(t, d, lvm.ConditionVolumeDegraded, v[0], false)
	})
	t.Run("thin, another volume of the pool in use", func(t *testing.T) {
		node, d, v, paths := start(t, lvm.LayoutThin, "a", "b")
		release := node.Hold(paths[0])
		replaceDevices(t, node, lvm.DefaultPool+"_tdata", lvm.DefaultPool+"_tmeta")
		for _, v := range v {
			onRemovedDisk(t, d, lvm.ConditionVolumeOnRemovedDisk, v, true)
		}
		d.MustActivate(t, v[1])
		if ran(node, "-an") != 0 {
			t.Error("the driver deactivates volumes of a pool in use")
		}
		release()
		d.MustActivate(t, v[1])
		d.MustActivate(t, v[0])
		for _, v := range v {
			onRemovedDisk(t, d, lvm.ConditionVolumeOnRemovedDisk, v, false)
		}
	})
	t.Run("thin, the pool has failed", func(t *testing.T) {
		node, d, v, _ := start(t, lvm.LayoutThin, "a", "b")
		replaceDevices(t, node, lvm.DefaultPool+"_tdata", lvm.DefaultPool+"_tmeta")
		node.FailPool("vg-test", lvm.DefaultPool)
		for _, v := range v {
			d.MustActivate(t, v)
			onRemovedDisk(t, d, lvm.ConditionVolumeOnRemovedDisk, v, false)
			onRemovedDisk(t, d, lvm.ConditionThinPoolFailed, v, false)
		}
	})
}

// TestRemovedDiskIsAway: while the removed disk is away, the missing disk is the condition, and the driver runs no command.
func TestRemovedDiskIsAway(t *testing.T) {
	node, b, d := hosttest.Started(t)
	v := d.MustCreate(t, b.Spec("a", 8*lvm.MiB))
	d.MustActivate(t, v)
	replaceDevices(t, node, v.ID.LV)
	node.Change("vg-test", func(g *lvm.Group) {
		for i := range g.PVs {
			if pv := &g.PVs[i]; strings.HasSuffix(pv.Device, "-back") {
				pv.Device, pv.Missing = "", true
			}
		}
	})
	d.Counted(t, "activation and health", 0, func() {
		d.MustActivate(t, v)
		onRemovedDisk(t, d, lvm.ConditionVolumeDataMissing, v, true)
		onRemovedDisk(t, d, lvm.ConditionVolumeOnRemovedDisk, v, false)
	})
}
