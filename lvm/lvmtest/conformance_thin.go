package lvmtest

import (
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// thin is a requested thin volume, perhaps with a source.
func (b Fixture) thin(name string, size lvm.Bytes, source lvm.ID) lvm.Spec {
	class := b.in(lvm.Class{Layout: lvm.LayoutThin, Pool: lvm.DefaultPool, Overprovision: 400})
	return lvm.Spec{Name: name, Class: class, Required: size, Source: source}
}

// removePool removes the thin pool as an admin would: the driver keeps it for the next volume.
func (b Fixture) removePool(t *testing.T) { b.Admin(t, "lvremove", "-y", b.Group+"/"+lvm.DefaultPool) }

// testThin: the first volume creates its pool, and the driver extends the pool with what is provisioned.
func testThin(t *testing.T, b Fixture) {
	d := b.Start(t)
	before := d.capacity(t, b.class())
	spec := b.thin("first", 5*lvm.MiB, lvm.ID{})
	var v lvm.Volume
	d.counted(t, "the first thin volume", 4, func() { v = d.create(t, spec) })
	if v.Size != 8*lvm.MiB || v.Class != spec.Class || v.State != lvm.StateReady {
		t.Errorf("created %+v, want %+v", v, spec)
	}
	d.counted(t, "again", 0, func() {
		if again := d.create(t, spec); again != v {
			t.Errorf("created again: %+v, want %+v", again, v)
		}
	})
	d.counted(t, "the second", 2, func() { d.create(t, b.thin("second", 4*lvm.MiB, lvm.ID{})) })
	v = testGrow(t, d, v, ExtentSize)
	pool := find(t, b.group(t), lvm.DefaultPool)
	if pool.Thin == nil || !pool.Thin.Zero || pool.Hidden {
		t.Errorf("the pool is %+v", pool)
	}
	c := d.capacity(t, spec.Class)
	if c.Largest < 4*ExtentSize || c.Largest > 4*before.Largest {
		t.Errorf("a group of %s can provision %+v", before.Largest, c)
	}
	d.counted(t, "a refused create", 0, func() {
		_, err := d.Create(t.Context(), b.thin("too large", c.Largest+1, lvm.ID{}))
		wantKind(t, "one byte more than the largest", err, lvm.KindInsufficientCapacity)
	})
	if large := d.create(t, b.thin("large", c.Largest, lvm.ID{})); large.Size != c.Largest {
		t.Errorf("requested the largest, %s, got %s", c.Largest, large.Size)
	}
	_, err := d.Create(t.Context(), b.thin("one more", 1, lvm.ID{}))
	wantKind(t, "one byte more than can be provisioned", err, lvm.KindInsufficientCapacity)
	_, err = d.Extend(t.Context(), v.ID, v.Size+1, 0)
	wantKind(t, "extension by more than can be provisioned", err, lvm.KindOutOfRange)
	b.deleteAll(t, d)
	if n := len(d.volumes(t)); n != 0 {
		t.Errorf("%d volumes are left", n)
	}
	b.removePool(t)
	if after := d.capacity(t, b.class()); after != before {
		t.Errorf("capacity without the pool %+v, before %+v", after, before)
	}
}

func (d *Driver) volumes(t testing.TB) []lvm.Volume {
	t.Helper()
	volumes, err := d.List(t.Context())
	must(t, err)
	return volumes
}

func (d *Driver) snapshots(t testing.TB) []lvm.Snapshot {
	t.Helper()
	snapshots, err := d.ListSnapshots(t.Context())
	must(t, err)
	return snapshots
}

func (d *Driver) snapshot(t testing.TB, name string, source lvm.ID) lvm.Snapshot {
	t.Helper()
	s, err := d.CreateSnapshot(t.Context(), lvm.SnapshotSpec{Name: name, Source: source})
	must(t, err)
	return s
}

// deleteAll deletes all volumes and snapshots of this driver.
func (b Fixture) deleteAll(t testing.TB, d *Driver) {
	t.Helper()
	for _, s := range d.snapshots(t) {
		must(t, d.DeleteSnapshot(t.Context(), s.ID))
	}
	for _, v := range d.volumes(t) {
		must(t, d.Delete(t.Context(), v.ID))
	}
	d.waitWiped(t)
}

// testSnapshots: a repeated request finds its snapshot, a different one with that name conflicts, and only thin volumes have
// snapshots.
func testSnapshots(t *testing.T, b Fixture) {
	d := b.Start(t)
	thick := d.create(t, b.light("thick", lvm.MiB)) // before the pool, which takes the rest of a small group
	origin := d.create(t, b.thin("origin", 8*lvm.MiB, lvm.ID{}))
	other := d.create(t, b.thin("other", 8*lvm.MiB, lvm.ID{}))
	var s lvm.Snapshot
	d.counted(t, "snapshot", 3, func() { s = d.snapshot(t, "snap-1", origin.ID) })
	want := lvm.Snapshot{ID: s.ID, UUID: s.UUID, Name: "snap-1", Cluster: Cluster, Group: lvm.VGName(b.Group), Pool: lvm.DefaultPool, Source: origin.ID,
		State: lvm.StateReady, Size: origin.Size, Created: s.Created}
	if s != want || s.UUID == "" || s.Created.IsZero() || s.ID.VG != origin.ID.VG {
		t.Errorf("created %+v, want %+v", s, want)
	}
	d.counted(t, "the same snapshot, and refused ones", 0, func() {
		if again := d.snapshot(t, "snap-1", origin.ID); again != s {
			t.Errorf("created again: %+v, want %+v", again, s)
		}
		_, err := d.CreateSnapshot(t.Context(), lvm.SnapshotSpec{Name: "snap-1", Source: other.ID})
		wantKind(t, "a snapshot of that name of another volume", err, lvm.KindExists)
		_, err = d.CreateSnapshot(t.Context(), lvm.SnapshotSpec{Name: "snap-2", Source: lvm.ID{VG: origin.ID.VG, LV: "none"}})
		wantKind(t, "a snapshot of a missing volume", err, lvm.KindNotFound)
		_, err = d.CreateSnapshot(t.Context(), lvm.SnapshotSpec{Name: strings.Repeat("s", 129), Source: origin.ID})
		wantKind(t, "a snapshot with a long name", err, lvm.KindInvalid)
		if found, err := d.LookupSnapshot(t.Context(), s.ID); err != nil || found != s {
			t.Errorf("found %+v, %v; want %+v", found, err, s)
		}
		_, err = d.Lookup(t.Context(), s.ID)
		wantKind(t, "a snapshot looked up as a volume", err, lvm.KindNotManaged)
		if all := d.snapshots(t); !slices.Equal(all, []lvm.Snapshot{s}) {
			t.Errorf("listed snapshots %+v, want %+v", all, s)
		}
	})
	_, err := d.CreateSnapshot(t.Context(), lvm.SnapshotSpec{Name: "snap-3", Source: thick.ID})
	wantKind(t, "a snapshot of a thick volume", err, lvm.KindInvalid)
	for _, v := range []lvm.Volume{origin, other} {
		if device, err := d.Activate(t.Context(), v.ID, v.UUID); err != nil || b.Suspended(t, device) {
			t.Errorf("%s: device %s, %v; is it suspended?", v.Name, device, err)
		}
	}
	d = b.Start(t)
	if all := d.snapshots(t); !slices.Equal(all, []lvm.Snapshot{s}) {
		t.Errorf("listed snapshots after a restart %+v, want %+v", all, s)
	}
	must(t, d.DeleteSnapshot(t.Context(), s.ID))
	d.counted(t, "deletion of a deleted snapshot", 0, func() { must(t, d.DeleteSnapshot(t.Context(), s.ID)) })
	_, err = d.LookupSnapshot(t.Context(), s.ID)
	wantKind(t, "a deleted snapshot", err, lvm.KindNotFound)
	b.deleteAll(t, d)
	b.removePool(t)
}

// testCopies: restored and cloned volumes outlive their sources, in any order of deletion.
func testCopies(t *testing.T, b Fixture) {
	d := b.Start(t)
	origin := d.create(t, b.thin("origin", 8*lvm.MiB, lvm.ID{}))
	s := d.snapshot(t, "snap", origin.ID)
	var restored lvm.Volume
	d.counted(t, "a volume from a snapshot", 3, func() { restored = d.create(t, b.thin("restored", 0, s.ID)) })
	if restored.Size != s.Size || restored.Source != s.ID || restored.State != lvm.StateReady {
		t.Errorf("restored %+v from %+v", restored, s)
	}
	d.counted(t, "the same, and refused requests", 0, func() {
		if again := d.create(t, b.thin("restored", 0, s.ID)); again != restored {
			t.Errorf("restored again: %+v, want %+v", again, restored)
		}
		_, err := d.Create(t.Context(), b.thin("restored", 0, origin.ID))
		wantKind(t, "a volume from another source with its name", err, lvm.KindExists)
		_, err = d.Create(t.Context(), b.thin("restored", 0, lvm.ID{}))
		wantKind(t, "an empty volume with its name", err, lvm.KindExists)
		small := b.thin("small", 4*lvm.MiB, s.ID)
		small.Limit = 4 * lvm.MiB
		_, err = d.Create(t.Context(), small)
		wantKind(t, "a volume smaller than its source", err, lvm.KindOutOfRange)
		thick := b.spec("thick", 8*lvm.MiB)
		thick.Source = s.ID
		_, err = d.Create(t.Context(), thick)
		wantKind(t, "a linear volume from a thin source", err, lvm.KindInvalid)
		_, err = d.Create(t.Context(), b.thin("of nothing", 0, lvm.ID{VG: s.ID.VG, LV: "none"}))
		wantKind(t, "a volume from a missing source", err, lvm.KindNotFound)
	})
	larger := d.create(t, b.thin("larger", s.Size+1, s.ID))
	if larger.Size != s.Size+ExtentSize {
		t.Errorf("a larger volume from the source has %s", larger.Size)
	}
	clone := d.create(t, b.thin("clone", 0, origin.ID))
	must(t, d.Delete(t.Context(), origin.ID))
	d.waitWiped(t)
	if _, err := d.LookupSnapshot(t.Context(), s.ID); err != nil {
		t.Errorf("the snapshot after its origin's deletion: %v", err)
	}
	late := d.create(t, b.thin("late", 0, s.ID))
	must(t, d.DeleteSnapshot(t.Context(), s.ID))
	for _, v := range []lvm.Volume{restored, larger, clone, late} {
		if found, err := d.Lookup(t.Context(), v.ID); err != nil || found != v {
			t.Errorf("%s, after its source's deletion: %+v, %v", v.Name, found, err)
		}
		if _, err := d.Activate(t.Context(), v.ID, v.UUID); err != nil {
			t.Error(err)
		}
	}
	if again := d.create(t, b.thin("restored", 0, s.ID)); again != restored {
		t.Errorf("restored again, with the snapshot deleted: %+v, want %+v", again, restored)
	}
	b.deleteAll(t, d)
	b.removePool(t)
}

// testAdminsPool: the driver uses an admin's pool as it is and never extends it; it refuses a pool that does not zero.
func testAdminsPool(t *testing.T, b Fixture) {
	d := b.Start(t)
	args := []string{"lvcreate", "-y", "--type", "thin-pool", "-l", "4", "--poolmetadatasize", "4m", "-c", "64k", "-n"}
	b.Admin(t, append(args, "theirs", "-Zy", b.Group)...)
	b.Admin(t, append(args, "leaky", "-Zn", b.Group)...)
	spec := b.thin("in theirs", 8*lvm.MiB, lvm.ID{})
	spec.Class.Pool, spec.Class.Overprovision = "theirs", 100
	d.create(t, spec)
	if c := d.capacity(t, spec.Class); c.Largest != 8*lvm.MiB {
		t.Errorf("a pool of 16 MiB with 8 provisioned has the capacity %+v", c)
	}
	spec.Name, spec.Required = "too large", 12*lvm.MiB
	_, err := d.Create(t.Context(), spec)
	wantKind(t, "more than an admin's pool can provision", err, lvm.KindInsufficientCapacity)
	spec.Class.Pool, spec.Required = "leaky", 1
	_, err = d.Create(t.Context(), spec)
	wantKind(t, "a pool that does not zero", err, lvm.KindInsufficientCapacity)
	if c := d.capacity(t, spec.Class); c.Largest != 0 {
		t.Errorf("its capacity is %+v", c)
	}
	b.deleteAll(t, d)
	b.Admin(t, "lvremove", "-y", b.Group+"/theirs")
	b.Admin(t, "lvremove", "-y", b.Group+"/leaky")
}

// testEmptyPool: the driver removes an empty pool with its sub-LVs, and the next volume creates another; a pool that holds a
// volume of an admin stays.
func testEmptyPool(t *testing.T, b Fixture) {
	d := b.Start(t)
	before := d.capacity(t, b.class())
	remove := func(what string, gone bool) {
		t.Helper()
		d.counted(t, what, map[bool]int{true: 1}[gone], func() { must(t, d.ExtendThinPools(t.Context())) })
		if after := d.capacity(t, b.class()); (after == before) != gone {
			t.Errorf("%s: capacity %+v, at first %+v", what, after, before)
		}
	}
	for range 2 {
		v := d.create(t, b.thin("v", 40*lvm.MiB, lvm.ID{}))
		sn := d.snapshot(t, "s", v.ID)
		must(t, d.Delete(t.Context(), v.ID))
		remove("with a snapshot", false)
		must(t, d.DeleteSnapshot(t.Context(), sn.ID))
		remove("with nothing", true)
	}
	must(t, d.Delete(t.Context(), d.create(t, b.thin("v", 8*lvm.MiB, lvm.ID{})).ID))
	b.Admin(t, "lvcreate", "-y", "--type", "thin", "-V", "4m", "--thinpool", lvm.DefaultPool, "-n", "theirs", b.Group)
	remove("with an admin's volume", false)
	b.Admin(t, "lvremove", "-y", b.Group+"/theirs")
	remove("with nothing again", true)
}
