package conformance

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// testGroupSnapshots: the members are snapshots of active and inactive volumes that are ready together, found again, and deleted together alone.
func testGroupSnapshots(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	var sources []lvm.ID
	var devices []string
	for _, name := range []string{"data", "wal", "idle"} {
		v := d.MustCreate(t, b.Thin(name, 8*lvm.MiB, lvm.ID{}))
		devices = append(devices, d.MustActivate(t, v))
		sources = append(sources, v.ID)
	}
	b.Admin(t, "lvchange", "-an", b.Group+"/"+sources[2].LV)
	spec := lvm.GroupSnapshotSpec{Name: "nightly", Sources: sources}
	made := d.MustGroupSnapshot(t, spec)
	if made.State != lvm.StateReady || made.Name != spec.Name || len(made.Members) != 3 || made.Created.IsZero() || !made.ID.IsGroupSnapshot() {
		t.Errorf("created %+v", made)
	}
	for _, sn := range made.Members {
		if sn.State != lvm.StateReady || sn.Member.Of != made.ID || sn.Size != 8*lvm.MiB {
			t.Errorf("a member is %+v", sn)
		}
	}
	for _, device := range devices[:2] {
		if b.Suspended(t, device) {
			t.Errorf("%s is suspended", device)
		}
	}
	testSameGroupSnapshot(t, d, spec, made)
	hosttest.Refused(t, "a member's deletion alone", lvm.KindInvalid)(struct{}{}, d.DeleteSnapshot(t.Context(), made.Members[1].ID))
	restored := d.MustCreate(t, b.Thin("restored", 0, made.Members[0].ID))
	d.MustActivate(t, restored)
	d = b.Start(t)
	if found, err := d.LookupGroupSnapshot(t.Context(), made.ID); err != nil || len(found.Members) != 3 {
		t.Errorf("after a restart: %+v, %v", found, err)
	}
	managed, err := d.ManagedVolumes(t.Context())
	if of := slices.DeleteFunc(managed.Owned, func(o lvm.ManagedVolume) bool { return o.Of != made.ID }); err != nil || len(of) != 3 {
		t.Errorf("the managed members are %+v, %v", of, err)
	}
	hosttest.Must(t, d.DeleteGroupSnapshot(t.Context(), made.ID))
	if left := d.Snapshots(t); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
	d.Counted(t, "deletion of a deleted group snapshot", 0, func() { hosttest.Must(t, d.DeleteGroupSnapshot(t.Context(), made.ID)) })
	hosttest.Refused(t, "a deleted group snapshot", lvm.KindNotFound)(d.LookupGroupSnapshot(t.Context(), made.ID))
	if lost := b.Lost(t); len(lost) > 0 {
		t.Errorf("the pool and LVM differ in the devices %v", lost)
	}
	b.DeleteAll(t, d)
	b.RemovePool(t)
}

// testSameGroupSnapshot: an equal request finds the group snapshot, in any order of its volumes; one that differs does not.
func testSameGroupSnapshot(t *testing.T, d *hosttest.Driver, spec lvm.GroupSnapshotSpec, made lvm.GroupSnapshot) {
	t.Helper()
	refused := func(what string, kind lvm.Kind, spec lvm.GroupSnapshotSpec) {
		t.Helper()
		hosttest.Refused(t, what, kind)(d.CreateGroupSnapshot(t.Context(), spec, unprepared))
	}
	d.Counted(t, "an equal request, and refused ones", 0, func() {
		again := d.MustGroupSnapshot(t, lvm.GroupSnapshotSpec{Name: spec.Name, Sources: []lvm.ID{spec.Sources[2], spec.Sources[0], spec.Sources[1]}})
		if again.ID != made.ID || len(again.Members) != 3 || again.Members[0] != made.Members[0] {
			t.Errorf("created again: %+v, want %+v", again, made)
		}
		refused("other volumes", lvm.KindExists, lvm.GroupSnapshotSpec{Name: spec.Name, Sources: spec.Sources[:2]})
		refused("no volume", lvm.KindInvalid, lvm.GroupSnapshotSpec{Name: "none"})
		refused("a volume twice", lvm.KindInvalid, lvm.GroupSnapshotSpec{Name: "twice", Sources: []lvm.ID{spec.Sources[0], spec.Sources[0]}})
		refused("a long name", lvm.KindInvalid, lvm.GroupSnapshotSpec{Name: strings.Repeat("g", 129), Sources: spec.Sources})
		refused("too many volumes", lvm.KindInvalid, lvm.GroupSnapshotSpec{Name: "many", Sources: make([]lvm.ID, lvm.MaxGroupMembers+1)})
		refused("another group", lvm.KindNotLocal, lvm.GroupSnapshotSpec{Name: "elsewhere", Sources: []lvm.ID{{VG: "aaaaaa-aaaa-aaaa-aaaa-aaaa-aaaa-aaaaaa", LV: "v"}}})
	})
	refused("a missing volume", lvm.KindNotFound, lvm.GroupSnapshotSpec{Name: "missing", Sources: []lvm.ID{spec.Sources[0], {VG: spec.Sources[0].VG, LV: "none"}}})
	if n := len(d.Snapshots(t)); n != 3 {
		t.Errorf("%d snapshots after a refused request, want 3", n)
	}
}

func unprepared(context.Context, lvm.ID) (func(), error) { return func() {}, nil }
