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
	d.MustActivate(t, v)
	idle := d.MustCreate(t, b.Light("idle", 8*lvm.MiB))
	d.MustActivate(t, idle) // tags it as ready: a later commit would change the group below
	b.Admin(t, "lvchange", "-y", "-an", b.Group+"/"+idle.ID.LV)
	whole := d.MustCapacity(t, b.Class())
	for _, how := range spoils {
		restore := b.Spoil(t, how)
		before := b.ReadGroup(t)
		passes := how == "partial" || how == "duplicated" // LVM would do it; the driver must not until the disk is back, or its copy removed
		d.Counted(t, how, 0, func() {
			hosttest.Refused(t, how+": create", lvm.KindInsufficientCapacity)(d.Create(t.Context(), b.Light("more", 8*lvm.MiB)))
			hosttest.Refused(t, how+": extend", kindOf(passes, lvm.KindBusy, lvm.KindConflict))(d.Extend(t.Context(), v.ID, v.Size+1, 0))
			hosttest.Refused(t, how+": look up a missing volume", kindOf(passes, lvm.KindBusy, lvm.KindNotFound))(d.Lookup(t.Context(), lvm.ID{VG: v.ID.VG, LV: "none"}))
			if device, err := d.Activate(t.Context(), v.ID, v.UUID); err != nil {
				t.Errorf("%s: the active volume: %q, %v", how, device, err)
			}
			if how == "duplicated" {
				hosttest.Refused(t, how+": activate", lvm.KindBusy)(d.Activate(t.Context(), idle.ID, idle.UUID))
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
	d.MustActivate(t, v)
	renamed := b
	renamed.Group += "-2"
	b.Admin(t, "vgrename", b.Group, renamed.Group)
	defer b.Admin(t, "vgrename", renamed.Group, b.Group)
	found, err := d.Lookup(t.Context(), v.ID)
	if err != nil || string(found.Group) != renamed.Group || found.UUID != v.UUID {
		t.Errorf("found %+v, %v", found, err)
	}
	hosttest.Refused(t, "create by the old name", lvm.KindInsufficientCapacity)(d.Create(t.Context(), b.Light("more", 8*lvm.MiB)))
	if grown, err := d.Extend(t.Context(), v.ID, v.Size+1, 0); err != nil || grown.Size != v.Size+lvmtest.ExtentSize {
		t.Errorf("extended to %+v, %v", grown, err)
	}
	d.MustRemove(t, v)
}

// testRenamedVolume: a volume is identified by its tags, whatever its name: the driver neither takes it for deleted nor creates
// it again.
func testRenamedVolume(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	v := d.MustCreate(t, b.Light("kept", 8*lvm.MiB))
	device := d.MustActivate(t, v)
	b.Admin(t, "lvrename", b.Group, v.ID.LV, "renamed")
	hosttest.WantKind(t, "delete", d.Delete(t.Context(), v.ID), lvm.KindConflict)
	hosttest.Refused(t, "create", lvm.KindExists)(d.Create(t.Context(), b.Light("kept", 8*lvm.MiB)))
	b.Admin(t, "lvrename", b.Group, "renamed", v.ID.LV)
	if now, err := d.Activate(t.Context(), v.ID, v.UUID); err != nil || now != device {
		t.Errorf("renamed back, its device is %s, %v; before, %s", now, err, device)
	}
	hosttest.Must(t, d.Delete(t.Context(), v.ID))
	hosttest.Refused(t, "lookup", lvm.KindNotFound)(d.Lookup(t.Context(), v.ID))
}
