package conformance

import (
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// testThin: the first volume creates its pool, and the driver extends the pool with what is provisioned.
func testThin(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	before := d.MustCapacity(t, b.Class())
	spec := b.Thin("first", 5*lvm.MiB, lvm.ID{})
	var v lvm.Volume
	d.Counted(t, "the first thin volume", 4, func() { v = d.MustCreate(t, spec) })
	if v.Size != 8*lvm.MiB || v.Class != spec.Class || v.State != lvm.StateReady {
		t.Errorf("created %+v, want %+v", v, spec)
	}
	d.Counted(t, "again", 0, func() {
		if again := d.MustCreate(t, spec); again != v {
			t.Errorf("created again: %+v, want %+v", again, v)
		}
	})
	d.Counted(t, "the second", 2, func() { d.MustCreate(t, b.Thin("second", 4*lvm.MiB, lvm.ID{})) })
	v = testGrow(t, d, v, lvmtest.ExtentSize)
	pool := hosttest.FindLV(t, b.ReadGroup(t), lvm.DefaultPool)
	if pool.Thin == nil || !pool.Thin.Zero || pool.Hidden {
		t.Errorf("the pool is %+v", pool)
	}
	c := d.MustCapacity(t, spec.Class)
	if c.Largest < 4*lvmtest.ExtentSize || c.Largest > 4*before.Largest {
		t.Errorf("a group of %s can provision %+v", before.Largest, c)
	}
	d.Counted(t, "a refused create", 0, func() {
		hosttest.Refused(t, "one byte more than the largest", lvm.KindInsufficientCapacity)(d.Create(t.Context(), b.Thin("too large", c.Largest+1, lvm.ID{})))
	})
	if large := d.MustCreate(t, b.Thin("large", c.Largest, lvm.ID{})); large.Size != c.Largest {
		t.Errorf("requested the largest, %s, got %s", c.Largest, large.Size)
	}
	hosttest.Refused(t, "one byte more than can be provisioned", lvm.KindInsufficientCapacity)(d.Create(t.Context(), b.Thin("one more", 1, lvm.ID{})))
	hosttest.Refused(t, "extension by more than can be provisioned", lvm.KindOutOfRange)(d.Extend(t.Context(), v.ID, v.Size+1, 0))
	b.DeleteAll(t, d)
	if n := len(d.Volumes(t)); n != 0 {
		t.Errorf("%d volumes are left", n)
	}
	b.RemovePool(t)
	if after := d.MustCapacity(t, b.Class()); after != before {
		t.Errorf("capacity without the pool %+v, before %+v", after, before)
	}
}

// testSnapshots: a repeated request finds its snapshot, a different one with that name conflicts, and only thin volumes have
// snapshots.
func testSnapshots(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	thick := d.MustCreate(t, b.Light("thick", lvm.MiB)) // before the pool, which takes the rest of a small group
	origin := d.MustCreate(t, b.Thin("origin", 8*lvm.MiB, lvm.ID{}))
	other := d.MustCreate(t, b.Thin("other", 8*lvm.MiB, lvm.ID{}))
	var s lvm.Snapshot
	d.Counted(t, "snapshot", 3, func() { s = d.MustSnapshot(t, "snap-1", origin.ID) })
	want := lvm.Snapshot{ID: s.ID, UUID: s.UUID, Name: "snap-1", Cluster: hosttest.Cluster, Group: lvm.VGName(b.Group), Pool: lvm.DefaultPool, Source: origin.ID,
		State: lvm.StateReady, Size: origin.Size, Created: s.Created}
	if s != want || s.UUID == "" || s.Created.IsZero() || s.ID.VG != origin.ID.VG {
		t.Errorf("created %+v, want %+v", s, want)
	}
	d.Counted(t, "the same snapshot, and refused ones", 0, func() {
		if again := d.MustSnapshot(t, "snap-1", origin.ID); again != s {
			t.Errorf("created again: %+v, want %+v", again, s)
		}
		hosttest.Refused(t, "a snapshot of that name of another volume", lvm.KindExists)(d.CreateSnapshot(t.Context(), lvm.SnapshotSpec{Name: "snap-1", Source: other.ID}))
		hosttest.Refused(t, "a snapshot of a missing volume", lvm.KindNotFound)(d.CreateSnapshot(t.Context(), lvm.SnapshotSpec{Name: "snap-2", Source: lvm.ID{VG: origin.ID.VG, LV: "none"}}))
		hosttest.Refused(t, "a snapshot with a long name", lvm.KindInvalid)(d.CreateSnapshot(t.Context(), lvm.SnapshotSpec{Name: strings.Repeat("s", 129), Source: origin.ID}))
		if found, err := d.LookupSnapshot(t.Context(), s.ID); err != nil || found != s {
			t.Errorf("found %+v, %v; want %+v", found, err, s)
		}
		hosttest.Refused(t, "a snapshot looked up as a volume", lvm.KindNotManaged)(d.Lookup(t.Context(), s.ID))
		if all := d.Snapshots(t); !slices.Equal(all, []lvm.Snapshot{s}) {
			t.Errorf("listed snapshots %+v, want %+v", all, s)
		}
	})
	hosttest.Refused(t, "a snapshot of a thick volume", lvm.KindInvalid)(d.CreateSnapshot(t.Context(), lvm.SnapshotSpec{Name: "snap-3", Source: thick.ID}))
	for _, v := range []lvm.Volume{origin, other} {
		if device, err := d.Activate(t.Context(), v.ID, v.UUID); err != nil || b.Suspended(t, device) {
			t.Errorf("%s: device %s, %v; is it suspended?", v.Name, device, err)
		}
	}
	d = b.Start(t)
	if all := d.Snapshots(t); !slices.Equal(all, []lvm.Snapshot{s}) {
		t.Errorf("listed snapshots after a restart %+v, want %+v", all, s)
	}
	hosttest.Must(t, d.DeleteSnapshot(t.Context(), s.ID))
	d.Counted(t, "deletion of a deleted snapshot", 0, func() { hosttest.Must(t, d.DeleteSnapshot(t.Context(), s.ID)) })
	hosttest.Refused(t, "a deleted snapshot", lvm.KindNotFound)(d.LookupSnapshot(t.Context(), s.ID))
	b.DeleteAll(t, d)
	b.RemovePool(t)
}

// testCopies: restored and cloned volumes outlive their sources, in any order of deletion.
func testCopies(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	origin := d.MustCreate(t, b.Thin("origin", 8*lvm.MiB, lvm.ID{}))
	s := d.MustSnapshot(t, "snap", origin.ID)
	var restored lvm.Volume
	d.Counted(t, "a volume from a snapshot", 3, func() { restored = d.MustCreate(t, b.Thin("restored", 0, s.ID)) })
	if restored.Size != s.Size || restored.Source != s.ID || restored.State != lvm.StateReady {
		t.Errorf("restored %+v from %+v", restored, s)
	}
	d.Counted(t, "the same, and refused requests", 0, func() {
		if again := d.MustCreate(t, b.Thin("restored", 0, s.ID)); again != restored {
			t.Errorf("restored again: %+v, want %+v", again, restored)
		}
		hosttest.Refused(t, "a volume from another source with its name", lvm.KindExists)(d.Create(t.Context(), b.Thin("restored", 0, origin.ID)))
		hosttest.Refused(t, "an empty volume with its name", lvm.KindExists)(d.Create(t.Context(), b.Thin("restored", 0, lvm.ID{})))
		small := b.Thin("small", 4*lvm.MiB, s.ID)
		small.Limit = 4 * lvm.MiB
		hosttest.Refused(t, "a volume smaller than its source", lvm.KindOutOfRange)(d.Create(t.Context(), small))
		thick := b.Spec("thick", 8*lvm.MiB)
		thick.Source = s.ID
		hosttest.Refused(t, "a linear volume from a thin source", lvm.KindInvalid)(d.Create(t.Context(), thick))
		hosttest.Refused(t, "a volume from a missing source", lvm.KindNotFound)(d.Create(t.Context(), b.Thin("of nothing", 0, lvm.ID{VG: s.ID.VG, LV: "none"})))
	})
	larger := d.MustCreate(t, b.Thin("larger", s.Size+1, s.ID))
	if larger.Size != s.Size+lvmtest.ExtentSize {
		t.Errorf("a larger volume from the source has %s", larger.Size)
	}
	clone := d.MustCreate(t, b.Thin("clone", 0, origin.ID))
	d.MustRemove(t, origin)
	if _, err := d.LookupSnapshot(t.Context(), s.ID); err != nil {
		t.Errorf("the snapshot after its origin's deletion: %v", err)
	}
	late := d.MustCreate(t, b.Thin("late", 0, s.ID))
	hosttest.Must(t, d.DeleteSnapshot(t.Context(), s.ID))
	for _, v := range []lvm.Volume{restored, larger, clone, late} {
		if found, err := d.Lookup(t.Context(), v.ID); err != nil || found != v {
			t.Errorf("%s, after its source's deletion: %+v, %v", v.Name, found, err)
		}
		if _, err := d.Activate(t.Context(), v.ID, v.UUID); err != nil {
			t.Error(err)
		}
	}
	if again := d.MustCreate(t, b.Thin("restored", 0, s.ID)); again != restored {
		t.Errorf("restored again, with the snapshot deleted: %+v, want %+v", again, restored)
	}
	b.DeleteAll(t, d)
	b.RemovePool(t)
}

// testAdminsPool: the driver uses an admin's pool as it is and never extends it; it refuses a pool that does not zero.
func testAdminsPool(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	args := []string{"lvcreate", "-y", "--type", "thin-pool", "-l", "4", "--poolmetadatasize", "4m", "-c", "64k", "-n"}
	b.Admin(t, append(args, "theirs", "-Zy", b.Group)...)
	b.Admin(t, append(args, "leaky", "-Zn", b.Group)...)
	spec := b.Thin("in theirs", 8*lvm.MiB, lvm.ID{})
	spec.Class.Pool, spec.Class.Overprovision = "theirs", 100
	d.MustCreate(t, spec)
	if c := d.MustCapacity(t, spec.Class); c.Largest != 8*lvm.MiB {
		t.Errorf("a pool of 16 MiB with 8 provisioned has the capacity %+v", c)
	}
	spec.Name, spec.Required = "too large", 12*lvm.MiB
	hosttest.Refused(t, "more than an admin's pool can provision", lvm.KindInsufficientCapacity)(d.Create(t.Context(), spec))
	spec.Class.Pool, spec.Required = "leaky", 1
	hosttest.Refused(t, "a pool that does not zero", lvm.KindInsufficientCapacity)(d.Create(t.Context(), spec))
	if c := d.MustCapacity(t, spec.Class); c.Largest != 0 {
		t.Errorf("its capacity is %+v", c)
	}
	b.DeleteAll(t, d)
	b.Admin(t, "lvremove", "-y", b.Group+"/theirs")
	b.Admin(t, "lvremove", "-y", b.Group+"/leaky")
}

// testAdoptedSnapshot: LVM skips the activation of an admin's snapshot. Once it is adopted, pods use it like any volume.
func testAdoptedSnapshot(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	origin := d.MustCreate(t, b.Thin("origin", 8*lvm.MiB, lvm.ID{}))
	b.Admin(t, "lvcreate", "-y", "-s", "-n", "theirs", b.Group+"/"+origin.ID.LV)
	v, err := d.Adopt(t.Context(), lvm.VGName(b.Group), "theirs", "theirs", "")
	hosttest.Must(t, err)
	d.MustActivate(t, v)
	b.DeleteAll(t, d)
	b.RemovePool(t)
}

// testEmptyPool: the driver removes an empty pool with its sub-LVs, and the next volume creates another; a pool that holds a
// volume of an admin stays.
func testEmptyPool(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	before := d.MustCapacity(t, b.Class())
	remove := func(what string, gone bool) {
		t.Helper()
		d.Counted(t, what, map[bool]int{true: 1}[gone], func() { hosttest.Must(t, d.ExtendThinPools(t.Context())) })
		if after := d.MustCapacity(t, b.Class()); (after == before) != gone {
			t.Errorf("%s: capacity %+v, at first %+v", what, after, before)
		}
	}
	for range 2 {
		v := d.MustCreate(t, b.Thin("v", 40*lvm.MiB, lvm.ID{}))
		sn := d.MustSnapshot(t, "s", v.ID)
		hosttest.Must(t, d.Delete(t.Context(), v.ID))
		remove("with a snapshot", false)
		hosttest.Must(t, d.DeleteSnapshot(t.Context(), sn.ID))
		remove("with nothing", true)
	}
	hosttest.Must(t, d.Delete(t.Context(), d.MustCreate(t, b.Thin("v", 8*lvm.MiB, lvm.ID{})).ID))
	b.Admin(t, "lvcreate", "-y", "--type", "thin", "-V", "4m", "--thinpool", lvm.DefaultPool, "-n", "theirs", b.Group)
	remove("with an admin's volume", false)
	b.Admin(t, "lvremove", "-y", b.Group+"/theirs")
	remove("with nothing again", true)
}
