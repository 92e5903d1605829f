package conformance

import (
	"reflect"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// spoils are the ways in which a group can become unusable.
var spoils = []string{"exported", "foreign", "read-only", "clustered", "fixed", "partial", "duplicated"}

// testSpoilt: the driver changes nothing in an unusable group and reports no capacity for it, but still finds its volumes.
func testSpoilt(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	v := d.MustCreate(t, b.Light("kept", 8*lvm.MiB))
	if _, err := d.Activate(t.Context(), v.ID, v.UUID); err != nil {
		t.Fatal(err)
	}
	idle := d.MustCreate(t, b.Light("idle", 8*lvm.MiB))
	if _, err := d.Activate(t.Context(), idle.ID, idle.UUID); err != nil { // tags it as ready: a later commit would change the group below
		t.Fatal(err)
	}
	b.Admin(t, "lvchange", "-y", "-an", b.Group+"/"+idle.ID.LV)
	whole := d.MustCapacity(t, b.Class())
	for _, how := range spoils {
		restore := b.Spoil(t, how)
		before := b.ReadGroup(t)
		passes := how == "partial" || how == "duplicated" // LVM would do it; the driver must not until the disk is back, or its copy removed
		d.Counted(t, how, 0, func() {
			_, err := d.Create(t.Context(), b.Light("more", 8*lvm.MiB))
			hosttest.WantKind(t, how+": create", err, lvm.KindInsufficientCapacity)
			_, err = d.Extend(t.Context(), v.ID, v.Size+1, 0)
			hosttest.WantKind(t, how+": extend", err, kindOf(passes, lvm.KindBusy, lvm.KindConflict))
			_, err = d.Lookup(t.Context(), lvm.ID{VG: v.ID.VG, LV: "none"})
			hosttest.WantKind(t, how+": look up a missing volume", err, kindOf(passes, lvm.KindBusy, lvm.KindNotFound))
			if device, err := d.Activate(t.Context(), v.ID, v.UUID); err != nil {
				t.Errorf("%s: the active volume: %q, %v", how, device, err)
			}
			if how == "duplicated" {
				_, err := d.Activate(t.Context(), idle.ID, idle.UUID)
				hosttest.WantKind(t, how+": activate", err, lvm.KindBusy)
			}
			if c := d.MustCapacity(t, b.Class()); c != (lvm.Capacity{}) {
				t.Errorf("%s: the capacity is %+v", how, c)
			}
			if found, err := d.Lookup(t.Context(), v.ID); err != nil || found != v {
				t.Errorf("%s: found %+v, %v; want %+v", how, found, err, v)
			}
			if how != "fixed" { // LVM removes volumes from such a group
				err := d.Delete(t.Context(), v.ID)
				hosttest.WantKind(t, how+": delete", err, kindOf(passes, lvm.KindBusy, lvm.KindConflict))
			}
		})
		if after := b.ReadGroup(t); !reflect.DeepEqual(before, after) {
			t.Errorf("%s: the group was changed from %+v to %+v", how, before, after)
		}
		restore()
		if c := d.MustCapacity(t, b.Class()); c != whole {
			t.Errorf("after %s: capacity %+v, before %+v", how, c, whole)
		}
	}
}

func kindOf(first bool, is, other lvm.Kind) lvm.Kind {
	if first {
		return is
	}
	return other
}

// testRenamed: a volume is identified by its group's UUID, whatever the group's name.
func testRenamed(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	v := d.MustCreate(t, b.Light("kept", 8*lvm.MiB))
	if _, err := d.Activate(t.Context(), v.ID, v.UUID); err != nil {
		t.Fatal(err)
	}
	renamed := b
	renamed.Group += "-2"
	b.Admin(t, "vgrename", b.Group, renamed.Group)
	defer b.Admin(t, "vgrename", renamed.Group, b.Group)
	found, err := d.Lookup(t.Context(), v.ID)
	if err != nil || string(found.Group) != renamed.Group || found.UUID != v.UUID {
		t.Errorf("found %+v, %v", found, err)
	}
	_, err = d.Create(t.Context(), b.Light("more", 8*lvm.MiB))
	hosttest.WantKind(t, "create by the old name", err, lvm.KindInsufficientCapacity)
	if grown, err := d.Extend(t.Context(), v.ID, v.Size+1, 0); err != nil || grown.Size != v.Size+lvmtest.ExtentSize {
		t.Errorf("extended to %+v, %v", grown, err)
	}
	hosttest.Must(t, d.Delete(t.Context(), v.ID))
	d.WaitWiped(t)
}

// testRenamedVolume: a volume is identified by its tags, whatever its name: the driver neither takes it for deleted nor creates
// it again.
func testRenamedVolume(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	v := d.MustCreate(t, b.Light("kept", 8*lvm.MiB))
	device, err := d.Activate(t.Context(), v.ID, v.UUID)
	hosttest.Must(t, err)
	b.Admin(t, "lvrename", b.Group, v.ID.LV, "renamed")
	hosttest.WantKind(t, "delete", d.Delete(t.Context(), v.ID), lvm.KindConflict)
	_, err = d.Create(t.Context(), b.Light("kept", 8*lvm.MiB))
	hosttest.WantKind(t, "create", err, lvm.KindExists)
	b.Admin(t, "lvrename", b.Group, "renamed", v.ID.LV)
	if now, err := d.Activate(t.Context(), v.ID, v.UUID); err != nil || now != device {
		t.Errorf("renamed back, its device is %s, %v; before, %s", now, err, device)
	}
	hosttest.Must(t, d.Delete(t.Context(), v.ID))
	hosttest.WantKind(t, "lookup", func() error { _, err := d.Lookup(t.Context(), v.ID); return err }(), lvm.KindNotFound)
}

// testTogether: the volumes of one pod fit together, or none is created.
func testTogether(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	half := d.MustCapacity(t, b.Class()).Available / 2 / lvmtest.ExtentSize * lvmtest.ExtentSize
	first, second, large := b.Light("first", half), b.Light("second", half), b.Light("large", half+2*lvmtest.ExtentSize)
	d.Counted(t, "a pod that does not fit", 0, func() {
		_, err := d.CreateWithPeers(t.Context(), first, []lvm.Spec{large})
		hosttest.WantKind(t, "the smaller of two that do not fit together", err, lvm.KindInsufficientCapacity)
	})
	_, err := d.CreateWithPeers(t.Context(), first, []lvm.Spec{second})
	hosttest.Must(t, err)
	_, err = d.Create(t.Context(), b.Light("other", 2*lvmtest.ExtentSize))
	hosttest.WantKind(t, "another pod's volume in the reserved capacity", err, lvm.KindInsufficientCapacity)
	_, err = d.CreateWithPeers(t.Context(), second, []lvm.Spec{first})
	hosttest.Must(t, err)
}
