package diskfailure

import (
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// TestAbsenceIsProved: a volume that the readable metadata lacks counts as absent only if no other disk can have newer
// metadata.
func TestAbsenceIsProved(t *testing.T) {
	for name, test := range map[string]struct {
		spoil  func(*lvm.PV)
		proved bool
	}{
		"whole":             {func(*lvm.PV) {}, true},
		"a disk is missing": {func(pv *lvm.PV) { pv.Missing, pv.Device = true, "" }, false},
		"a disk is missing, with the MISSING flag": {func(pv *lvm.PV) { pv.Missing, pv.MissingFlag, pv.Device = true, true, "" }, true},
		"a disk is unresponsive":                   {func(pv *lvm.PV) { pv.Unresponsive = true }, false},
		"a disk's metadata is not read":            {func(pv *lvm.PV) { pv.MetadataUnreadable = true }, false},
		"a disk has a copy":                        {func(pv *lvm.PV) { pv.DuplicateDevices = []string{"/dev/fakeb", "/dev/fakex"} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			node, b, d := hosttest.StartedWith(t, hosttest.Unsettled)
			v := d.MustCreate(t, b.Thin("v", 8*lvm.MiB, lvm.ID{}))
			waiting := d.MustCreate(t, b.Light("waiting", 8*lvm.MiB)) // waits for its ready tag
			sn := d.MustSnapshot(t, "s", v.ID)
			lvs := []lvm.LV{}
			node.Change("vg-test", func(g *lvm.Group) { lvs, g.LVs = g.LVs, nil; test.spoil(&g.PVs[5]) })
			kind := lvm.KindBusy
			if test.proved {
				kind = lvm.KindNotFound
			}
			deleted := func(what string, err error) {
				t.Helper()
				if test.proved {
					hosttest.Must(t, err)
				} else {
					hosttest.WantKind(t, what, err, lvm.KindBusy)
				}
			}
			hosttest.Refused(t, "lookup", kind)(d.Lookup(t.Context(), v.ID))
			hosttest.Refused(t, "snapshot", kind)(d.LookupSnapshot(t.Context(), sn.ID))
			hosttest.Refused(t, "activate", kind)(d.Activate(t.Context(), v.ID, v.UUID))
			hosttest.Refused(t, "extend", kind)(d.Extend(t.Context(), v.ID, 16*lvm.MiB, 0))
			hosttest.Refused(t, "copy", kind)(d.Create(t.Context(), b.Thin("copy", 0, v.ID)))
			hosttest.Refused(t, "take a snapshot", kind)(d.CreateSnapshot(t.Context(), lvm.SnapshotSpec{Name: "more", Source: v.ID}))
			hosttest.Refused(t, "adopt", kind)(d.Adopt(t.Context(), "vg-test", "none", "none", ""))
			deleted("delete", d.Delete(t.Context(), v.ID))
			deleted("delete snapshot", d.DeleteSnapshot(t.Context(), sn.ID))
			node.Change("vg-test", func(g *lvm.Group) {
				g.LVs, g.PVs[5] = lvs, lvm.PV{UUID: g.PVs[5].UUID, Device: "/dev/fakeg", Extents: g.PVs[5].Extents, Allocatable: true}
			})
			if device, err := d.Activate(t.Context(), waiting.ID, waiting.UUID); err != nil {
				t.Errorf("with the disk back: %s, %v", device, err)
			}
		})
	}
}

// TestNoCommitWhilePVMissing: no request commits anything while a disk is missing: LVM would set its MISSING flag, and an admin
// would have to clear the flag. With the disk back each request succeeds.
func TestNoCommitWhilePVMissing(t *testing.T) {
	node, b, d := hosttest.StartedWith(t, hosttest.Unsettled)
	zeroed, light := d.MustCreate(t, b.Spec("zeroed", 8*lvm.MiB)), d.MustCreate(t, b.Light("light", 8*lvm.MiB))
	thin := d.MustCreate(t, b.Thin("thin", 8*lvm.MiB, lvm.ID{}))
	sn := d.MustSnapshot(t, "s", thin.ID)
	theirs := d.MustCreate(t, b.Light("theirs", 8*lvm.MiB))
	for _, v := range []lvm.Volume{zeroed, light, thin, theirs} {
		d.MustActivate(t, v)
	}
	hosttest.Untag(node, "vg-test", theirs.ID.LV)
	fresh := d.MustCreate(t, b.Light("fresh", 8*lvm.MiB)) // waits for its ready tag
	requests := map[string]func() error{
		"delete":                   func() error { return d.Delete(t.Context(), zeroed.ID) },
		"delete what is not wiped": func() error { return d.Delete(t.Context(), light.ID) },
		"delete a thin volume":     func() error { return d.Delete(t.Context(), thin.ID) },
		"delete a snapshot":        func() error { return d.DeleteSnapshot(t.Context(), sn.ID) },
		"extend":                   func() error { _, err := d.Extend(t.Context(), zeroed.ID, 16*lvm.MiB, 0); return err },
		"create":                   func() error { _, err := d.Create(t.Context(), b.Light("new", 8*lvm.MiB)); return err },
		"take a snapshot": func() error {
			_, err := d.CreateSnapshot(t.Context(), lvm.SnapshotSpec{Name: "t", Source: thin.ID})
			return err
		},
		"adopt":     func() error { _, err := d.Adopt(t.Context(), "vg-test", theirs.ID.LV, "mine", ""); return err },
		"first use": func() error { _, err := d.Activate(t.Context(), fresh.ID, fresh.UUID); return err },
	}
	putBack := node.LoseDisk("vg-test", 5)
	before := node.Group("vg-test").Seqno
	for what, request := range requests {
		err := request()
		if err == nil || !strings.Contains(err.Error(), "is missing: reconnect its disk") {
			t.Errorf("%s with a missing disk: %v", what, err)
		}
		if kind := lvm.KindOf(err); kind != lvm.KindBusy && kind != lvm.KindInsufficientCapacity {
			t.Errorf("%s with a missing disk: kind %d: %v", what, kind, err)
		}
	}
	if after := node.Group("vg-test"); after.Seqno != before || after.PVs[5].MissingFlag {
		t.Errorf("%d commits, the disk has the MISSING flag: %v", after.Seqno-before, after.PVs[5].MissingFlag)
	}
	putBack()
	for _, what := range []string{"adopt", "extend", "create", "take a snapshot", "first use", "delete", "delete what is not wiped", "delete a snapshot", "delete a thin volume"} {
		if err := requests[what](); err != nil {
			t.Errorf("%s with the disk back: %v", what, err)
		}
	}
}

// TestUnreadableGroup: nothing changes a group that the driver cannot read, and none of its volumes counts as absent. Pods of its volumes start: LVM
// activates the managed volume with the UUID of the PersistentVolume, and no other.
func TestUnreadableGroup(t *testing.T) {
	node, b, d := hosttest.StartedWith(t, lvm.Config{})
	active, idle := d.MustCreate(t, b.Spec("active", 8*lvm.MiB)), d.MustCreate(t, b.Spec("idle", 8*lvm.MiB))
	device, err := d.Activate(t.Context(), active.ID, active.UUID)
	hosttest.Must(t, err)
	b.Admin(t, "lvcreate", "-y", "-l", "1", "-n", "theirs", b.Group)
	b.Admin(t, "lvchange", "-y", "-an", "vg-test/"+idle.ID.LV)
	b.Admin(t, "lvchange", "-y", "-an", "vg-test/theirs")
	before := node.Group("vg-test")
	seqno, theirs := before.Seqno, before.LVs[slices.IndexFunc(before.LVs, func(lv lvm.LV) bool { return lv.Name == "theirs" })]
	node.Change("vg-test", func(g *lvm.Group) { g.Unreadable = "a new syntax" })
	if now, err := d.Activate(t.Context(), active.ID, active.UUID); err != nil || now != device {
		t.Errorf("an active volume: %q, %v", now, err)
	}
	_, err = d.Activate(t.Context(), idle.ID, active.UUID[1:]+"x")
	hosttest.WantKind(t, "activate another volume of that name", err, lvm.KindBusy)
	_, err = d.Activate(t.Context(), lvm.ID{VG: idle.ID.VG, LV: "theirs"}, theirs.UUID)
	hosttest.WantKind(t, "activate an unmanaged volume", err, lvm.KindBusy)
	if _, err := d.Activate(t.Context(), idle.ID, idle.UUID); err != nil {
		t.Error(err)
	}
	for what, c := range map[string]struct {
		kind    lvm.Kind
		request func() error
	}{
		"create": {lvm.KindInsufficientCapacity, func() error { _, err := d.Create(t.Context(), b.Spec("new", 8*lvm.MiB)); return err }},
		"delete": {lvm.KindBusy, func() error { return d.Delete(t.Context(), active.ID) }},
		"extend": {lvm.KindBusy, func() error { _, err := d.Extend(t.Context(), active.ID, 16*lvm.MiB, 0); return err }},
	} {
		err := c.request()
		if hosttest.WantKind(t, what, err, c.kind); err == nil || !strings.Contains(err.Error(), "a new syntax") {
			t.Errorf("%s: %v", what, err)
		}
	}
	held, err := d.ManagedVolumes(t.Context())
	hosttest.Must(t, err)
	if len(held.Owned) != 0 || len(held.Unread) != 1 || !strings.Contains(held.Unread[0], "the metadata of volume group vg-test cannot be read: a new syntax") {
		t.Errorf("the group's volumes count as absent: %+v", held)
	}
	if now := node.Group("vg-test").Seqno; now != seqno {
		t.Errorf("%d commits", now-seqno)
	}
	inv, err := d.Inventory(t.Context())
	if hosttest.Must(t, err); len(inv.Volumes) > 0 || len(inv.Unread) != 1 || !strings.Contains(inv.Unread[0], "a new syntax") {
		t.Errorf("the inventory is complete: %+v", inv)
	}
	found, err := d.Health(t.Context())
	if hosttest.Must(t, err); len(found) != 1 || found[0].Type != lvm.ConditionVolumeGroupUnusable || !strings.Contains(found[0].Text, "a new syntax") {
		t.Errorf("conditions: %+v", found)
	}
}

// TestDuplicatePVs: while two disks have one PV UUID, the driver activates, wipes and changes nothing, and active volumes stay
// usable. The error names both devices.
func TestDuplicatePVs(t *testing.T) {
	node, b, d := hosttest.StartedWith(t, lvm.Config{})
	active, idle, gone := d.MustCreate(t, b.Spec("active", 8*lvm.MiB)), d.MustCreate(t, b.Spec("idle", 8*lvm.MiB)), d.MustCreate(t, b.Spec("gone", 8*lvm.MiB))
	device := d.MustActivate(t, active)
	b.Admin(t, "lvchange", "-y", "-an", "vg-test/"+idle.ID.LV)
	release := node.HoldWipes()
	hosttest.Must(t, d.Delete(t.Context(), gone.ID))
	node.Change("vg-test", func(g *lvm.Group) { g.PVs[5].DuplicateDevices = []string{"/dev/fakeg", "/dev/fakex"} })
	release()
	before := len(node.Commands())
	for what, request := range map[string]func() error{
		"activate": func() error { _, err := d.Activate(t.Context(), idle.ID, idle.UUID); return err },
		"delete":   func() error { return d.Delete(t.Context(), active.ID) },
	} {
		err := request()
		hosttest.WantKind(t, what, err, lvm.KindBusy)
		if err == nil || !strings.Contains(err.Error(), "/dev/fakeg, /dev/fakex") || !strings.Contains(err.Error(), "vgimportclone") {
			t.Errorf("%s: the error lacks the disks, or what to do: %v", what, err)
		}
	}
	node.Suspend(device)
	if _, err := d.Activate(t.Context(), active.ID, active.UUID); err == nil {
		t.Error("the driver loaded the table of a suspended volume again, perhaps from the copy")
	}
	node.Resume(device)
	if now, err := d.Activate(t.Context(), active.ID, active.UUID); err != nil || now != device {
		t.Errorf("the active volume: %s, %v, want %s", now, err, device)
	}
	ran := slices.DeleteFunc(node.Commands()[before:], func(c lvm.Command) bool { return c.Name == "fullreport" })
	if len(ran) > 0 {
		t.Errorf("with a disk and its copy, the driver ran %v", ran)
	}
	node.Change("vg-test", func(g *lvm.Group) { g.PVs[5].DuplicateDevices = nil })
	d.WaitWiped(t)
	d.MustActivate(t, idle)
}

// TestVolumeWithMissingPVIsNotActivated: the driver does not activate a volume with a part on a missing disk. The error names the disk, and does not
// quote LVM's advice. It activates a volume that is complete.
func TestVolumeWithMissingPVIsNotActivated(t *testing.T) {
	node, b, d := hosttest.StartedWith(t, lvm.Config{})
	v := d.MustCreate(t, b.Spec("v", 8*lvm.MiB))
	d.MustActivate(t, v)
	on := hosttest.FindLV(t, b.ReadGroup(t), v.ID.LV).Segments[0].Areas[0].PV
	for i, pv := range b.ReadGroup(t).PVs {
		b.Admin(t, "lvchange", "-y", "-an", "vg-test/"+v.ID.LV)
		putBack := node.LoseDisk("vg-test", i)
		_, err := d.Activate(t.Context(), v.ID, v.UUID)
		if pv.UUID != on {
			hosttest.Must(t, err)
		} else if hosttest.WantKind(t, "activation", err, lvm.KindBusy); !strings.Contains(err.Error(), "is missing: reconnect its disk") || strings.Contains(err.Error(), "partial") {
			t.Errorf("the error is %v", err)
		}
		putBack()
	}
}

// TestPvmoveBlocksExtendAndDelete: while pvmove moves extents of a volume, the driver neither extends nor deletes it.
func TestPvmoveBlocksExtendAndDelete(t *testing.T) {
	node, b, d := hosttest.StartedWith(t, lvm.Config{})
	v := d.MustCreate(t, b.Light("v", 8*lvm.MiB))
	d.MustActivate(t, v)
	var still []lvm.LV
	node.Change("vg-test", func(g *lvm.Group) {
		still = slices.Clone(g.LVs)
		move := g.LVs[0]
		move.Name, move.UUID, move.Tags, move.Hidden, move.Type = "pvmove0", "m", nil, true, "mirror"
		g.LVs[0].Segments = []lvm.Segment{{Extents: move.Extents, Type: "linear", Areas: []lvm.Area{{LV: move.Name}}}}
		g.LVs = append(g.LVs, move)
	})
	before := len(node.Commands())
	for what, err := range map[string]error{"delete": d.Delete(t.Context(), v.ID), "extend": func() error { _, err := d.Extend(t.Context(), v.ID, 16*lvm.MiB, 0); return err }()} {
		hosttest.WantKind(t, what, err, lvm.KindBusy)
		if err != nil && !strings.Contains(err.Error(), "pvmove moves extents of it: retry") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if ran := node.Commands()[before:]; len(ran) > 0 {
		t.Errorf("the driver ran %v", ran)
	}
	node.Change("vg-test", func(g *lvm.Group) { g.LVs = still })
	d.MustExtend(t, v, 16*lvm.MiB)
	hosttest.Must(t, d.Delete(t.Context(), v.ID))
}

// TestGroupOnIgnoredDisk: the record refuses the disk of a group, as one with new hardware. The group's volumes do not count as absent, so no claim is
// released.
func TestGroupOnIgnoredDisk(t *testing.T) {
	node, _, d := hosttest.StartedWith(t, lvm.Config{})
	node.Unplug("vg-test")
	for recorded, want := range map[bool]int{true: 1, false: 0} {
		node.Ignore(lvm.UnacceptedPV{Device: "/dev/sdx", PV: "pv-x", Reason: "the node's record has it on another device", Recorded: recorded})
		held, err := d.ManagedVolumes(t.Context())
		hosttest.Must(t, err)
		if len(held.Unread) != want {
			t.Errorf("recorded %v: %+v", recorded, held)
		}
	}
}
