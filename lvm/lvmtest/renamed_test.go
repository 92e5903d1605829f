package lvmtest

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

const (
	usualName = "pvc-0f0e0d0c-0b0a-4908-8706-050403020100" // as external-provisioner names volumes
	otherName = "pvc-1f1e1d1c-1b1a-4918-8716-151413121110"
)

// rename renames a volume as lvrename does.
func (n *Node) rename(group, from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	g := n.group(group)
	g.find(from).Name = to
	for i := range g.LVs {
		if g.LVs[i].Origin == from {
			g.LVs[i].Origin = to
		}
	}
	for _, d := range n.devices {
		if d.volume == from {
			d.volume = to
		}
	}
}

// TestRenamedVolume: the driver finds a volume that an admin has renamed by its tags, and neither takes it for deleted nor
// creates it again. It refuses every request and says what to do; after that the volume works and has its data.
func TestRenamedVolume(t *testing.T) {
	for _, name := range []string{usualName, "named by hand"} {
		for _, layout := range []lvm.Layout{lvm.LayoutLinear, lvm.LayoutThin} {
			t.Run(name+" "+string(layout), func(t *testing.T) {
				node := newNode()
				d := fakeFixture(node).oneAtATime().Start(t)
				spec := lvm.Spec{Name: name, Class: lvm.Class{Group: "vg-test", Layout: layout}, Required: 8 * lvm.MiB}
				v := d.create(t, spec)
				_, err := d.Activate(t.Context(), v.ID, v.UUID)
				must(t, err)
				node.rename("vg-test", v.ID.LV, "kept")
				before := node.group("vg-test").read()
				refused := func(what string, err error, kind lvm.Kind) {
					t.Helper()
					if wantKind(t, what, err, kind); err != nil && !strings.Contains(err.Error(), "lvrename vg-test kept "+v.ID.LV) {
						t.Errorf("%s: the error does not say what to do: %v", what, err)
					}
				}
				refused("delete", d.Delete(t.Context(), v.ID), lvm.KindConflict)
				_, err = d.Create(t.Context(), spec)
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
					_, err = d.Create(t.Context(), fakeFixture(node).thin("copy", 0, v.ID))
					refused("copy", err, lvm.KindConflict)
				}
				wantKind(t, "look for a volume called kept", func() error { _, err := d.Lookup(t.Context(), lvm.ID{VG: v.ID.VG, LV: "kept"}); return err }(), lvm.KindConflict)
				if all := d.volumes(t); !slices.Equal(all, []lvm.Volume{v}) {
					t.Errorf("listed %+v, want %+v", all, v)
				}
				if after := node.group("vg-test").read(); !reflect.DeepEqual(before, after) {
					t.Errorf("the group changed from %+v to %+v", before, after)
				}
				node.rename("vg-test", "kept", v.ID.LV)
				if again := d.create(t, spec); again != v {
					t.Errorf("renamed back it is %+v, want %+v", again, v)
				}
				must(t, d.Delete(t.Context(), v.ID))
				d.waitWiped(t)
				wantKind(t, "look for it", func() error { _, err := d.Lookup(t.Context(), v.ID); return err }(), lvm.KindNotFound)
			})
		}
	}
}

// TestSwappedNames: the driver distinguishes two volumes whose names an admin swapped.
func TestSwappedNames(t *testing.T) {
	node, b, d := started(t)
	one, two := d.create(t, b.light(usualName, 8*lvm.MiB)), d.create(t, b.light(otherName, 16*lvm.MiB))
	node.rename("vg-test", one.ID.LV, "aside")
	node.rename("vg-test", two.ID.LV, one.ID.LV)
	wantKind(t, "delete the one under whose name the other is", d.Delete(t.Context(), one.ID), lvm.KindConflict)
	node.rename("vg-test", "aside", two.ID.LV)
	for _, v := range []lvm.Volume{one, two} {
		wantKind(t, "delete one of those that were swapped", d.Delete(t.Context(), v.ID), lvm.KindConflict)
	}
	node.Change("vg-test", func(g *lvm.Group) {
		g.LVs = slices.DeleteFunc(g.LVs, func(lv lvm.LV) bool { return lv.UUID == one.UUID })
	})
	wantKind(t, "delete a removed one, with the other one under its name", d.Delete(t.Context(), one.ID), lvm.KindConflict)
	node.rename("vg-test", one.ID.LV, two.ID.LV)
	must(t, d.Delete(t.Context(), one.ID))
	must(t, d.Delete(t.Context(), two.ID))
}

// TestRenamedSnapshot: nor does the driver take a renamed snapshot for deleted, or create it again.
func TestRenamedSnapshot(t *testing.T) {
	node, b, d := started(t)
	v := d.create(t, b.thin(usualName, 8*lvm.MiB, lvm.ID{}))
	sn := d.snapshot(t, "s", v.ID)
	node.rename("vg-test", sn.ID.LV, "kept")
	wantKind(t, "delete", d.DeleteSnapshot(t.Context(), sn.ID), lvm.KindConflict)
	_, err := d.LookupSnapshot(t.Context(), sn.ID)
	wantKind(t, "lookup", err, lvm.KindConflict)
	_, err = d.CreateSnapshot(t.Context(), lvm.SnapshotSpec{Name: "s", Source: v.ID})
	wantKind(t, "take it again", err, lvm.KindExists)
	_, err = d.Create(t.Context(), b.thin("copy", 0, sn.ID))
	wantKind(t, "copy it", err, lvm.KindConflict)
	node.rename("vg-test", "kept", sn.ID.LV)
	must(t, d.DeleteSnapshot(t.Context(), sn.ID))
}

// TestRenamedAdopted: the handle of an adopted volume has its name at the time of the adoption.
func TestRenamedAdopted(t *testing.T) {
	node, b, d := started(t)
	v := d.create(t, b.light(usualName, 8*lvm.MiB))
	_, err := d.Activate(t.Context(), v.ID, v.UUID)
	must(t, err)
	node.rename("vg-test", v.ID.LV, "theirs")
	unmark(node, "vg-test", "theirs")
	adopted, err := d.Adopt(t.Context(), "vg-test", "theirs", "adopted-1", "")
	must(t, err)
	if adopted.ID.LV != "theirs" {
		t.Errorf("adopted as %+v", adopted)
	}
	node.rename("vg-test", "theirs", "kept")
	wantKind(t, "delete", d.Delete(t.Context(), adopted.ID), lvm.KindConflict)
	node.rename("vg-test", "kept", "theirs")
	must(t, d.Delete(t.Context(), adopted.ID))
}

// TestRenamedOfAnEarlierRelease: without a name tag, no volume counts as deleted while it may be a renamed one, until an admin
// tags that one with its name.
func TestRenamedOfAnEarlierRelease(t *testing.T) {
	node, b, d := started(t)
	v := d.create(t, b.light(usualName, 8*lvm.MiB))
	_, err := d.Activate(t.Context(), v.ID, v.UUID)
	must(t, err)
	tags := func(change func([]string) []string) {
		node.Change("vg-test", func(g *lvm.Group) { g.LVs[0].Tags = change(g.LVs[0].Tags) })
	}
	tags(func(tags []string) []string {
		return slices.DeleteFunc(tags, func(tag string) bool { return strings.HasPrefix(tag, "nodelvm.name=") })
	})
	if found, err := d.Lookup(t.Context(), v.ID); err != nil || found != v {
		t.Errorf("found %+v, %v", found, err)
	}
	node.rename("vg-test", v.ID.LV, "kept")
	for _, lv := range []string{v.ID.LV, otherName} {
		err := d.Delete(t.Context(), lvm.ID{VG: v.ID.VG, LV: lv})
		if wantKind(t, "delete", err, lvm.KindConflict); err != nil && !strings.Contains(err.Error(), "--addtag nodelvm.name=NAME vg-test/kept") {
			t.Errorf("the error does not say what to do: %v", err)
		}
	}
	tags(func(tags []string) []string { return append(tags, "nodelvm.name="+v.ID.LV) })
	wantKind(t, "delete the one that was renamed", d.Delete(t.Context(), v.ID), lvm.KindConflict)
	must(t, d.Delete(t.Context(), lvm.ID{VG: v.ID.VG, LV: otherName}))
	node.rename("vg-test", "kept", v.ID.LV)
	must(t, d.Delete(t.Context(), v.ID))
}
