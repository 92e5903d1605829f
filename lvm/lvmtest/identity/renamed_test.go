package identity

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

const (
	usualName = "pvc-0f0e0d0c-0b0a-4908-8706-050403020100" // as external-provisioner names volumes
	otherName = "pvc-1f1e1d1c-1b1a-4918-8716-151413121110"
)

// TestRenamedVolume: the driver finds a volume that an admin has renamed by its tags, and neither takes it for deleted nor
// creates it again. It refuses every request and says what to do; after that the volume works and has its data.
func TestRenamedVolume(t *testing.T) {
	for _, name := range []string{usualName, "named by hand"} {
		for _, layout := range []lvm.Layout{lvm.LayoutLinear, lvm.LayoutThin} {
			t.Run(name+" "+string(layout), func(t *testing.T) {
				node := hosttest.NewNode()
				d := hosttest.OnFake(node).OneAtATime().Start(t)
				spec := lvm.Spec{Name: name, Class: lvm.Class{Group: "vg-test", Layout: layout}, Required: 8 * lvm.MiB}
				v := d.MustCreate(t, spec)
				d.MustActivate(t, v)
				node.Rename("vg-test", v.ID.LV, "kept")
				before := node.Group("vg-test")
				refused := func(what string, err error, kind lvm.Kind) {
					t.Helper()
					if hosttest.WantKind(t, what, err, kind); err != nil && !strings.Contains(err.Error(), "lvrename vg-test kept "+v.ID.LV) {
						t.Errorf("%s: the error does not say what to do: %v", what, err)
					}
				}
				refused("delete", d.Delete(t.Context(), v.ID), lvm.KindConflict)
				_, err := d.Create(t.Context(), spec)
				refused("create", err, lvm.KindExists)
				_, err = d.Activate(t.Context(), v.ID, v.UUID)
				refused("activate", err, lvm.KindConflict)
				_, err = d.Extend(t.Context(), v.ID, 16*lvm.MiB, 0)
				refused("extend", err, lvm.KindConflict)
				_, err = d.Lookup(t.Context(), v.ID)
				refused("lookup", err, lvm.KindConflict)
				_, err = d.CreateSnapshot(t.Context(), lvm.SnapshotSpec{Name: "s", Source: v.ID})
				refused("snapshot", err, lvm.KindConflict)
				if layout == lvm.LayoutThin {
					_, err = d.Create(t.Context(), hosttest.OnFake(node).Thin("copy", 0, v.ID))
					refused("copy", err, lvm.KindConflict)
				}
				hosttest.Refused(t, "look for a volume called kept", lvm.KindConflict)(d.Lookup(t.Context(), lvm.ID{VG: v.ID.VG, LV: "kept"}))
				if all := d.Volumes(t); !slices.Equal(all, []lvm.Volume{v}) {
					t.Errorf("listed %+v, want %+v", all, v)
				}
				if after := node.Group("vg-test"); !reflect.DeepEqual(before, after) {
					t.Errorf("the group changed from %+v to %+v", before, after)
				}
				node.Rename("vg-test", "kept", v.ID.LV)
				if again := d.MustCreate(t, spec); again != v {
					t.Errorf("renamed back it is %+v, want %+v", again, v)
				}
				d.MustRemove(t, v)
				hosttest.Refused(t, "look for it", lvm.KindNotFound)(d.Lookup(t.Context(), v.ID))
			})
		}
	}
}

// TestSwappedNames: the driver distinguishes two volumes whose names an admin swapped.
func TestSwappedNames(t *testing.T) {
	node, b, d := hosttest.Started(t)
	one, two := d.MustCreate(t, b.Light(usualName, 8*lvm.MiB)), d.MustCreate(t, b.Light(otherName, 16*lvm.MiB))
	node.Rename("vg-test", one.ID.LV, "aside")
	node.Rename("vg-test", two.ID.LV, one.ID.LV)
	hosttest.WantKind(t, "delete the one under whose name the other is", d.Delete(t.Context(), one.ID), lvm.KindConflict)
	node.Rename("vg-test", "aside", two.ID.LV)
	for _, v := range []lvm.Volume{one, two} {
		hosttest.WantKind(t, "delete one of those that were swapped", d.Delete(t.Context(), v.ID), lvm.KindConflict)
	}
	node.Change("vg-test", func(g *lvm.Group) {
		g.LVs = slices.DeleteFunc(g.LVs, func(lv lvm.LV) bool { return lv.UUID == one.UUID })
	})
	hosttest.WantKind(t, "delete a removed one, with the other one under its name", d.Delete(t.Context(), one.ID), lvm.KindConflict)
	node.Rename("vg-test", one.ID.LV, two.ID.LV)
	hosttest.Must(t, d.Delete(t.Context(), one.ID))
	hosttest.Must(t, d.Delete(t.Context(), two.ID))
}

// TestRenamedSnapshot: nor does the driver take a renamed snapshot for deleted, or create it again.
func TestRenamedSnapshot(t *testing.T) {
	node, b, d := hosttest.Started(t)
	v := d.MustCreate(t, b.Thin(usualName, 8*lvm.MiB, lvm.ID{}))
	sn := d.MustSnapshot(t, "s", v.ID)
	node.Rename("vg-test", sn.ID.LV, "kept")
	hosttest.WantKind(t, "delete", d.DeleteSnapshot(t.Context(), sn.ID), lvm.KindConflict)
	hosttest.Refused(t, "lookup", lvm.KindConflict)(d.LookupSnapshot(t.Context(), sn.ID))
	hosttest.Refused(t, "take it again", lvm.KindExists)(d.CreateSnapshot(t.Context(), lvm.SnapshotSpec{Name: "s", Source: v.ID}))
	hosttest.Refused(t, "copy it", lvm.KindConflict)(d.Create(t.Context(), b.Thin("copy", 0, sn.ID)))
	node.Rename("vg-test", "kept", sn.ID.LV)
	hosttest.Must(t, d.DeleteSnapshot(t.Context(), sn.ID))
}

// TestRenamedAdopted: the handle of an adopted volume has its name at the time of the adoption.
func TestRenamedAdopted(t *testing.T) {
	node, b, d := hosttest.Started(t)
	v := d.MustCreate(t, b.Light(usualName, 8*lvm.MiB))
	d.MustActivate(t, v)
	node.Rename("vg-test", v.ID.LV, "theirs")
	hosttest.Untag(node, "vg-test", "theirs")
	adopted, err := d.Adopt(t.Context(), "vg-test", "theirs", "adopted-1", "")
	hosttest.Must(t, err)
	if adopted.ID.LV != "theirs" {
		t.Errorf("adopted as %+v", adopted)
	}
	node.Rename("vg-test", "theirs", "kept")
	hosttest.WantKind(t, "delete", d.Delete(t.Context(), adopted.ID), lvm.KindConflict)
	node.Rename("vg-test", "kept", "theirs")
	hosttest.Must(t, d.Delete(t.Context(), adopted.ID))
}

// TestOwnsRenamedVolume: a pod can end after lvrename, and its mounted device still belongs to that volume only.
func TestOwnsRenamedVolume(t *testing.T) {
	node := hosttest.NewNode()
	d := hosttest.OnFake(node).OneAtATime().Start(t)
	v := d.MustCreate(t, lvm.Spec{Name: usualName, Class: lvm.Class{Group: "vg-test", Layout: lvm.LayoutLinear}, Required: 8 * lvm.MiB})
	other := d.MustCreate(t, lvm.Spec{Name: otherName, Class: lvm.Class{Group: "vg-test", Layout: lvm.LayoutLinear}, Required: 8 * lvm.MiB})
	path := d.MustActivate(t, v)
	var minor uint32
	_, err := fmt.Sscanf(path, "/dev/dm-%d", &minor)
	hosttest.Must(t, err)
	for _, name := range []string{v.ID.LV, "kept"} {
		node.Rename("vg-test", v.ID.LV, name)
		for id, want := range map[lvm.ID]bool{v.ID: true, other.ID: false} {
			if owns, err := d.Owns(t.Context(), id, unix.Mkdev(253, minor)); err != nil || owns != want {
				t.Errorf("called %s, the device is %s: %v, %v", name, id, owns, err)
			}
		}
		node.Rename("vg-test", name, v.ID.LV)
	}
}
