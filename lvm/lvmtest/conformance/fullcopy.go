package conformance

import (
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// elsewhere are a snapshot and a volume on another node.
var elsewhere = []lvm.ID{
	{VG: "elsewh-ere0-0000-0000-0000-0000-000000", LV: "s-0123456789abcdef0123456789abcdef"},
	{VG: "elsewh-ere0-0000-0000-0000-0000-000000", LV: "pvc-00000000-0000-0000-0000-000000000000"},
}

// testFullCopy: a volume that receives a full copy keeps its source over restarts, can be larger than it, is no pod's before its end, and is then the
// one that a request for a copy of that source asks for.
func testFullCopy(t *testing.T, b hosttest.Fixture) {
	for _, source := range elsewhere {
		testFullCopyOf(t, b, source)
	}
}

func testFullCopyOf(t *testing.T, b hosttest.Fixture, elsewhere lvm.ID) {
	d := b.Start(t)
	ctx := t.Context()
	spec := b.Thin("restored elsewhere", 12*lvm.MiB, elsewhere)
	in := lvm.Incoming{Spec: spec, Move: firstMove}
	receive := func() lvm.Volume {
		v, err := d.Receive(ctx, in)
		hosttest.Must(t, err)
		return v
	}
	v := receive()
	d = b.Start(t)
	if again := receive(); again.UUID != v.UUID || again.Source != elsewhere || again.State != lvm.StateReceiving || again.Size != spec.Required {
		t.Errorf("again: %+v", again)
	}
	refusesUse(t, d, v, lvm.KindConflict)
	if list, err := d.FullCopies(ctx); err != nil || len(list) != 1 || list[0].ID != v.ID || !list[0].IsFullCopy() {
		t.Errorf("full copies: %+v, %v", list, err)
	}
	hosttest.Must(t, d.Discard(ctx, v.ID, v.UUID))
	d.WaitWiped(t)
	v = receive()
	_, err := d.Received(ctx, v.ID, v.UUID, firstMove)
	hosttest.Must(t, err)
	d = b.Start(t)
	refusesUse(t, d, v, lvm.KindConflict)
	_, err = d.Finish(ctx, v.ID, v.UUID)
	hosttest.Must(t, err)
	if list, err := d.FullCopies(ctx); err != nil || len(list) != 0 {
		t.Errorf("full copies: %+v, %v", list, err)
	}
	hosttest.WantKind(t, "discard a ready one", d.Discard(ctx, v.ID, v.UUID), lvm.KindConflict)
	if made := d.MustCreate(t, spec); made.UUID != v.UUID || made.Source != elsewhere {
		t.Errorf("made: %+v", made)
	}
	hosttest.Refused(t, "a copy of another source", lvm.KindExists)(d.Create(ctx, b.Thin(spec.Name, 12*lvm.MiB, lvm.ID{})))
	d.MustActivate(t, v)
	b.DeleteAll(t, d)
	b.RemovePool(t)
}

// testSnapshotOfClone: the snapshot from which a clone on another node is copied has the clone's claim in its record, which a restart does not lose, and
// is the same for a repeated request.
func testSnapshotOfClone(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	ctx := t.Context()
	spec := lvm.SnapshotSpec{Name: "clone-1", Source: d.MustCreate(t, b.Thin("origin", 8*lvm.MiB, lvm.ID{})).ID, Claim: "shop/data-0"}
	made, err := d.CreateSnapshot(ctx, spec)
	hosttest.Must(t, err)
	d = b.Start(t)
	again, err := d.CreateSnapshot(ctx, spec)
	if hosttest.Must(t, err); again != made || again.Claim != spec.Claim || again.Source != spec.Source {
		t.Errorf("made %+v, and again %+v", made, again)
	}
	all, err := d.ManagedVolumes(ctx)
	hosttest.Must(t, err)
	for _, o := range all.Owned {
		if o.Snapshot && (o.Claim != spec.Claim || o.Name != spec.Name) {
			t.Errorf("held: %+v", o)
		}
	}
	hosttest.Must(t, d.DeleteSnapshot(ctx, made.ID))
	b.DeleteAll(t, d)
	b.RemovePool(t)
}

// testSnapshotDevice: a snapshot has a device only while a full copy reads it, and cannot be deleted meanwhile.
func testSnapshotDevice(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	ctx := t.Context()
	origin := d.MustCreate(t, b.Thin("origin", 8*lvm.MiB, lvm.ID{}))
	s := d.MustSnapshot(t, "snap", origin.ID)
	isActive := func(want bool) {
		t.Helper()
		if _, active, err := d.Device(ctx, s.ID, s.UUID); err != nil || active != want {
			t.Errorf("active: %v, %v", active, err)
		}
	}
	isActive(false)
	hosttest.Must(t, d.ReleaseSnapshot(ctx, s.ID, s.UUID))
	hosttest.Refused(t, "another UUID", lvm.KindNotFound)(d.SnapshotDevice(ctx, s.ID, origin.UUID))
	hosttest.Refused(t, "a volume", lvm.KindNotManaged)(d.SnapshotDevice(ctx, origin.ID, origin.UUID))
	device, err := d.SnapshotDevice(ctx, s.ID, s.UUID)
	hosttest.Must(t, err)
	isActive(true)
	d.Counted(t, "its device again", 0, func() {
		if again, err := d.SnapshotDevice(ctx, s.ID, s.UUID); err != nil || again != device {
			t.Errorf("again: %s, %v", again, err)
		}
	})
	release := b.Hold(t, device)
	hosttest.WantKind(t, "delete it while it is read", d.DeleteSnapshot(ctx, s.ID), lvm.KindInUse)
	hosttest.Must(t, d.ReleaseSnapshot(ctx, s.ID, s.UUID))
	isActive(true)
	release()
	d = b.Start(t) // a killed driver leaves it active
	hosttest.Must(t, d.ReleaseSnapshots(ctx))
	isActive(false)
	if _, err := d.SnapshotDevice(ctx, s.ID, s.UUID); err != nil {
		t.Error(err)
	}
	hosttest.Must(t, d.DeleteSnapshot(ctx, s.ID))
	hosttest.Must(t, d.ReleaseSnapshot(ctx, s.ID, s.UUID))
	b.DeleteAll(t, d)
	b.RemovePool(t)
}

// testSnapshotOfMovedVolume: a snapshot stays when its volume moves away. It is restored here and copied to other nodes beside the former copy, and
// without it.
func testSnapshotOfMovedVolume(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	ctx := t.Context()
	origin := d.MustCreate(t, b.Thin("moves", 8*lvm.MiB, lvm.ID{}))
	s := d.MustSnapshot(t, "stays", origin.ID)
	_, err := d.Hold(ctx, origin.ID, origin.UUID, firstMove)
	hosttest.Must(t, err)
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"held", func() error { return nil }},
		{"handed over", func() error { return d.HandOver(ctx, origin.ID, origin.UUID, firstMove) }},
		{"removed", func() error { return d.RemoveMoved(ctx, origin.ID, origin.UUID) }},
	} {
		hosttest.Must(t, step.do())
		d = b.Start(t)
		if now, err := d.LookupSnapshot(ctx, s.ID); err != nil || now.UUID != s.UUID || now.Size != s.Size {
			t.Errorf("%s: %+v, %v", step.what, now, err)
		}
		_, err := d.SnapshotDevice(ctx, s.ID, s.UUID)
		hosttest.Must(t, err)
		hosttest.Must(t, d.ReleaseSnapshot(ctx, s.ID, s.UUID))
		d.MustActivate(t, d.MustCreate(t, b.Thin("restored when "+step.what, 8*lvm.MiB, s.ID)))
	}
	hosttest.Must(t, d.DeleteSnapshot(ctx, s.ID))
	b.DeleteAll(t, d)
	b.RemovePool(t)
}
