package conformance

import (
	"slices"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// testReadOnlyCopies: a read-only copy of a snapshot provisions what its journal may write, becomes read-only once, and outlives its source.
func testReadOnlyCopies(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	origin := d.MustCreate(t, b.Thin("origin", 8*lvm.MiB, lvm.ID{}))
	s := d.MustSnapshot(t, "snap", origin.ID)
	copied := func(name string, access lvm.Access, source lvm.ID) lvm.Spec {
		spec := b.Thin(name, 0, source)
		spec.Access = access
		return spec
	}
	var dirty lvm.Volume
	d.Counted(t, "a read-only copy", 3, func() { dirty = d.MustCreate(t, copied("dirty", lvm.AccessReplay, s.ID)) })
	if dirty.Size != s.Size || dirty.Access != lvm.AccessReplay || dirty.State != lvm.StateReady {
		t.Errorf("created %+v from %+v", dirty, s)
	}
	device := d.MustActivate(t, dirty)
	d.Counted(t, "the begin of its replay", 1, func() {
		for range 2 {
			hosttest.Must(t, d.BeginReplay(t.Context(), dirty.ID, dirty.UUID))
		}
	})
	if v, err := d.Lookup(t.Context(), dirty.ID); err != nil || v.Access != lvm.AccessReplaying || b.TakesNoWrites(t, device) {
		t.Errorf("while its journal is replayed it is %q, %v; its device takes no writes: %t", v.Access, err, b.TakesNoWrites(t, device))
	}
	d.Counted(t, "the record of its replay", 1, func() { hosttest.Must(t, d.SetReplayed(t.Context(), dirty.ID, dirty.UUID)) })
	d.Counted(t, "the same, and refused requests", 0, func() {
		hosttest.Must(t, d.SetReplayed(t.Context(), dirty.ID, dirty.UUID))
		if again := d.MustCreate(t, copied("dirty", lvm.AccessReplay, s.ID)); again.Access != lvm.AccessReadOnly || again.UUID != dirty.UUID {
			t.Errorf("created again: %+v", again)
		}
		hosttest.Refused(t, "a writable one with its name", lvm.KindExists)(d.Create(t.Context(), b.Thin("dirty", 0, s.ID)))
		larger := copied("larger", lvm.AccessReplay, s.ID)
		larger.Required = s.Size + 1
		hosttest.Refused(t, "a larger one", lvm.KindOutOfRange)(d.Create(t.Context(), larger))
		hosttest.Refused(t, "its expansion", lvm.KindOutOfRange)(d.Extend(t.Context(), dirty.ID, dirty.Size+1, 0))
		refused := func(err error) (lvm.Volume, error) { return lvm.Volume{}, err }
		hosttest.Refused(t, "a writable volume that becomes read-only", lvm.KindInvalid)(refused(d.SetReplayed(t.Context(), origin.ID, origin.UUID)))
		hosttest.Refused(t, "the replay of a writable volume", lvm.KindInvalid)(refused(d.BeginReplay(t.Context(), origin.ID, origin.UUID)))
		hosttest.Refused(t, "a second replay", lvm.KindBusy)(refused(d.BeginReplay(t.Context(), dirty.ID, dirty.UUID)))
		hosttest.Refused(t, "another volume of its name", lvm.KindNotFound)(refused(d.SetReplayed(t.Context(), dirty.ID, origin.UUID)))
		hosttest.Refused(t, "one that is gone", lvm.KindNotFound)(refused(d.SetReplayed(t.Context(), lvm.ID{VG: s.ID.VG, LV: "gone"}, dirty.UUID)))
	})
	if again := d.MustActivate(t, dirty); again != device || b.Suspended(t, device) {
		t.Errorf("its device was %s, and is %s", device, again)
	}
	busy := d.MustCreate(t, copied("busy", lvm.AccessReplay, s.ID))
	device = d.MustActivate(t, busy)
	hosttest.Must(t, d.BeginReplay(t.Context(), busy.ID, busy.UUID))
	b.Write(t, device, 100) // each may take a chunk of 64 KiB
	hosttest.Must(t, d.SetReplayed(t.Context(), busy.ID, busy.UUID))
	if v, err := d.Lookup(t.Context(), busy.ID); err != nil || v.Access != lvm.AccessReadOnlyFull {
		t.Errorf("after many writes it is %q, %v", v.Access, err)
	}
	// The kernel's count begins again with each device, and a restarted driver does not know when the device began.
	cut := d.MustCreate(t, copied("cut", lvm.AccessReplay, s.ID))
	restarted := d.MustCreate(t, copied("restarted", lvm.AccessReplay, s.ID))
	for _, v := range []lvm.Volume{cut, restarted} {
		d.MustActivate(t, v)
		hosttest.Must(t, d.BeginReplay(t.Context(), v.ID, v.UUID))
	}
	b.Admin(t, "lvchange", "-an", b.Group+"/"+cut.ID.LV)
	d.MustActivate(t, cut)
	hosttest.Must(t, d.SetReplayed(t.Context(), cut.ID, cut.UUID))
	d = b.Start(t)
	d.MustActivate(t, restarted)
	d.Counted(t, "a replay after an interrupted one", 1, func() {
		for range 2 {
			hosttest.Must(t, d.BeginReplay(t.Context(), restarted.ID, restarted.UUID))
		}
	})
	if v, err := d.Lookup(t.Context(), restarted.ID); err != nil || v.Access != lvm.AccessReplayingFull || !v.Access.NeedsReplay() {
		t.Errorf("while its journal is replayed again it is %q, %v", v.Access, err)
	}
	hosttest.Must(t, d.SetReplayed(t.Context(), restarted.ID, restarted.UUID))
	for _, v := range []lvm.Volume{cut, restarted} {
		if now, err := d.Lookup(t.Context(), v.ID); err != nil || now.Access != lvm.AccessReadOnlyFull {
			t.Errorf("%s: after an interrupted replay it is %q, %v", v.Name, now.Access, err)
		}
	}
	raw := d.MustCreate(t, copied("raw", lvm.AccessReadOnly, s.ID))
	clone := d.MustCreate(t, copied("clone", lvm.AccessReplay, origin.ID))
	for v, want := range map[lvm.Volume]bool{dirty: true, busy: true, raw: true, clone: false, origin: false} {
		if got := b.TakesNoWrites(t, d.MustActivate(t, v)); got != want {
			t.Errorf("%s takes no writes: %t, want %t", v.Name, got, want)
		}
	}
	d = b.Start(t)
	of := d.MustSnapshot(t, "of a copy", dirty.ID)
	restored := d.MustCreate(t, b.Thin("restored", 0, of.ID))
	hosttest.Must(t, d.DeleteSnapshot(t.Context(), s.ID))
	hosttest.Must(t, d.DeleteSnapshot(t.Context(), of.ID))
	d.MustRemove(t, origin)
	for _, v := range []lvm.Volume{dirty, raw, clone, restored} {
		if _, err := d.Activate(t.Context(), v.ID, v.UUID); err != nil {
			t.Errorf("%s, after its source's deletion: %v", v.Name, err)
		}
	}
	b.DeleteAll(t, d)
	if names := slices.Collect(func(yield func(string) bool) {
		for _, v := range d.Volumes(t) {
			yield(v.Name)
		}
	}); len(names) > 0 {
		t.Errorf("%q are left", names)
	}
	b.RemovePool(t)
}
