package conformance

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/report"
)

func testCapacity(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	before := d.MustCapacity(t, b.Class())
	byTag := b.Class()
	byTag.Group = "@" + b.Tag
	if c := d.MustCapacity(t, byTag); c != before {
		t.Errorf("by tag the capacity is %+v, by name %+v", c, before)
	}
	if before.Largest != before.Available || before.Largest < 128*lvmtest.ExtentSize {
		t.Errorf("a group without volumes has the capacity %+v", before)
	}
	spec := b.Light("all of it", before.Largest+1)
	_, err := d.Create(t.Context(), spec)
	hosttest.WantKind(t, "one byte more than the largest", err, lvm.KindInsufficientCapacity)
	if err != nil && !strings.Contains(err.Error(), before.Largest.String()) {
		t.Errorf("the error does not name the largest possible volume: %v", err)
	}
	spec.Required = before.Largest
	v := d.MustCreate(t, spec)
	d.Counted(t, "capacity", 0, func() {
		if c := d.MustCapacity(t, b.Class()); c != (lvm.Capacity{}) {
			t.Errorf("a full group has the capacity %+v", c)
		}
	})
	d.MustRemove(t, v)
	if after := d.MustCapacity(t, b.Class()); after != before {
		t.Errorf("capacity after all is deleted %+v, before %+v", after, before)
	}
}

// testFragments leaves free ranges of 1 to 4 extents, and requests the largest volume, which needs several of them.
func testFragments(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	var volumes []lvm.Volume
	for i := range 8 {
		spec := b.Light(fmt.Sprintf("piece-%d", i), lvm.Bytes(1+i%4)*lvmtest.ExtentSize)
		volumes = append(volumes, d.MustCreate(t, spec))
	}
	for i, v := range volumes {
		if i%2 == 0 {
			hosttest.Must(t, d.Delete(t.Context(), v.ID))
		}
	}
	d.WaitWiped(t)
	rest := b.Light("rest", d.MustCapacity(t, b.Class()).Largest)
	if v := d.MustCreate(t, rest); v.Size != rest.Required {
		t.Errorf("requested %s in fragments, got %s", rest.Required, v.Size)
	}
	hosttest.Refused(t, "a volume in a full group", lvm.KindInsufficientCapacity)(d.Create(t.Context(), b.Spec("one more", 1)))
}

// testAtOnce: equal requests create one volume, and different ones do not block each other.
func testAtOnce(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	var wait sync.WaitGroup
	ids := make([]lvm.Volume, 12)
	for i := range ids {
		wait.Go(func() {
			v, err := d.Create(t.Context(), b.Light(fmt.Sprintf("volume-%d", i%4), 8*lvm.MiB))
			if err != nil {
				t.Error(err)
			}
			ids[i] = v
		})
	}
	wait.Wait()
	for i, v := range ids {
		if v != ids[i%4] || v.UUID == "" {
			t.Errorf("request %d got %+v, its equal got %+v", i, v, ids[i%4])
		}
	}
	volumes := d.Volumes(t)
	if len(volumes) != 4 {
		t.Errorf("4 names created %d volumes: %+v", len(volumes), volumes)
	}
}

func testDelete(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	var v lvm.Volume
	d.Counted(t, "create, delete and wipe", 4, func() {
		v = d.MustCreate(t, b.Spec("gone", 16*lvm.MiB))
		d.MustRemove(t, v)
	})
	d.Counted(t, "delete of a deleted volume", 0, func() { hosttest.Must(t, d.Delete(t.Context(), v.ID)) })
	if _, active, err := d.Device(t.Context(), v.ID, v.UUID); err != nil || active {
		t.Errorf("a deleted volume's device: active %v, %v", active, err)
	}
	hosttest.Refused(t, "lookup of a deleted volume", lvm.KindNotFound)(d.Lookup(t.Context(), v.ID))
	hosttest.Refused(t, "activation of a deleted volume", lvm.KindNotFound)(d.Activate(t.Context(), v.ID, v.UUID))
	elsewhere := lvm.ID{VG: lvm.VGUUID(strings.Map(func(r rune) rune {
		if r == '-' {
			return r
		}
		return 'x'
	}, string(v.ID.VG))), LV: v.ID.LV}
	hosttest.WantKind(t, "delete in another node's group", d.Delete(t.Context(), elsewhere), lvm.KindNotLocal)
	hosttest.Refused(t, "lookup in another node's group", lvm.KindNotLocal)(d.Lookup(t.Context(), elsewhere))

	d.MustRemove(t, d.MustCreate(t, b.Light("not wiped", 16*lvm.MiB)))

	inactive := d.MustCreate(t, b.Spec("inactive", 16*lvm.MiB))
	b.Admin(t, "lvchange", "-an", b.Group+"/"+inactive.ID.LV)
	d.Counted(t, "delete of an inactive volume", 3, func() {
		d.MustRemove(t, inactive)
	})
}

func testDeleteInUse(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	v := d.MustCreate(t, b.Light("in use", 8*lvm.MiB))
	device := d.MustDevice(t, v)
	for what, use := range map[string]func(testing.TB, string) func(){"an open volume": b.Hold, "a volume that is bound at a pod's path": b.Bind} {
		release := use(t, device)
		d.Counted(t, "a refused delete", 0, func() {
			hosttest.WantKind(t, "delete of "+what, d.Delete(t.Context(), v.ID), lvm.KindInUse)
		})
		if still, err := d.Lookup(t.Context(), v.ID); err != nil || still != v {
			t.Errorf("a refused delete left %+v, %v; want %+v", still, err, v)
		}
		release()
	}
	d.MustRemove(t, v)
}

// testForeign: the driver neither uses nor changes what it does not manage.
func testForeign(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	ours := d.MustCreate(t, b.Light("taken", 8*lvm.MiB))
	d.MustRemove(t, ours)
	target := b.Group + "/" + ours.ID.LV
	b.Admin(t, "lvcreate", "-y", "-an", "-Zn", "-Wn", "-l", "1", "-n", ours.ID.LV, b.Group)
	hosttest.Refused(t, "create with an unmanaged volume's name", lvm.KindExists)(d.Create(t.Context(), b.Light("taken", 8*lvm.MiB)))
	hosttest.WantKind(t, "delete of an unmanaged volume", d.Delete(t.Context(), ours.ID), lvm.KindNotManaged)
	hosttest.Refused(t, "lookup of an unmanaged volume", lvm.KindNotManaged)(d.Lookup(t.Context(), ours.ID))
	hosttest.Refused(t, "activation of an unmanaged volume", lvm.KindNotManaged)(d.Activate(t.Context(), ours.ID, ours.UUID))
	b.Admin(t, "lvremove", "-y", target)

	elsewhere := d.MustCreate(t, b.Light("taken", 8*lvm.MiB))
	d.MustActivate(t, elsewhere) // tags it as ready now, not while the admin works
	b.Admin(t, "lvchange", "--deltag", "nodelvm.cluster="+hosttest.Cluster, "--addtag", "nodelvm.cluster=other", target)
	hosttest.Refused(t, "create with the name of another cluster's volume", lvm.KindExists)(d.Create(t.Context(), b.Light("taken", 8*lvm.MiB)))
	hosttest.WantKind(t, "delete of another cluster's volume", d.Delete(t.Context(), elsewhere.ID), lvm.KindNotManaged)
	b.Admin(t, "lvchange", "--addtag", "nodelvm.cluster="+hosttest.Cluster, target)
	if err := d.Delete(t.Context(), elsewhere.ID); err == nil {
		t.Error("a volume with two cluster tags was deleted")
	}
	b.Admin(t, "lvremove", "-y", target)
}

func testActivate(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	v := d.MustCreate(t, b.Light("active", 8*lvm.MiB))
	var device string
	// The first one may have to tag the volume as ready.
	for atMost := 1; atMost >= 0; atMost-- {
		d.Counted(t, "activation of an active volume", atMost, func() {
			device = d.MustActivate(t, v)
		})
	}
	if now, active, err := d.Device(t.Context(), v.ID, v.UUID); err != nil || !active || now != device {
		t.Errorf("activated as %q, found as %q, %v, %v", device, now, active, err)
	}
	b.Admin(t, "lvchange", "-an", b.Group+"/"+v.ID.LV)
	if now, active, err := d.Device(t.Context(), v.ID, v.UUID); err != nil || active {
		t.Errorf("after its deactivation it is found as %q, %v, %v", now, active, err)
	}
	d.Counted(t, "activation", 1, func() {
		d.MustActivate(t, v)
	})
	if _, active, err := d.Device(t.Context(), v.ID, v.UUID); err != nil || !active {
		t.Errorf("after its activation: active %v, %v", active, err)
	}
	hosttest.Refused(t, "activation by the UUID of an older volume", lvm.KindNotFound)(d.Activate(t.Context(), v.ID, v.UUID[:len(v.UUID)-6]+"zzzzzz"))
}

func testLook(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	var want []lvm.Volume
	for _, name := range []string{"one", "two", "three"} {
		want = append(want, d.MustCreate(t, b.Light(name, 8*lvm.MiB)))
	}
	slices.SortFunc(want, func(a, b lvm.Volume) int { return strings.Compare(a.ID.String(), b.ID.String()) })
	d.Counted(t, "readiness, list, lookup and report", 0, func() {
		hosttest.Must(t, d.Ready(t.Context()))
		if got, err := d.List(t.Context()); err != nil || !slices.Equal(got, want) {
			t.Errorf("list: %+v, %v; want %+v", got, err, want)
		}
		if got, err := d.Lookup(t.Context(), want[0].ID); err != nil || got != want[0] {
			t.Errorf("lookup: %+v, %v; want %+v", got, err, want[0])
		}
		inv := hosttest.Report(d.Host)
		i := slices.IndexFunc(inv.Groups, func(g report.Group) bool { return string(g.Name) == b.Group })
		if i < 0 || inv.Groups[i].Size-inv.Groups[i].Free != 24*lvm.MiB || hosttest.InState(inv, lvm.StateReady) != 3 || inv.InFlight != 0 {
			t.Errorf("with three volumes of 8 MiB it reports %+v", inv)
		}
	})
	hosttest.Refused(t, "lookup of a missing volume", lvm.KindNotFound)(d.Lookup(t.Context(), lvm.ID{VG: want[0].ID.VG, LV: "none"}))
}

// testRestart: a start completes a volume that a request may have got, wipes a deleted one, and keeps a ready one.
func testRestart(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	ready := d.MustCreate(t, b.Spec("ready", 8*lvm.MiB))
	begun := d.MustCreate(t, b.Spec("begun", 8*lvm.MiB))
	gone := d.MustCreate(t, b.Spec("gone", 8*lvm.MiB))
	hosttest.Must(t, d.Close(t.Context()))
	hosttest.Refused(t, "create on a closed host", lvm.KindBusy)(d.Create(t.Context(), b.Spec("late", 8*lvm.MiB)))
	for v, state := range map[lvm.Volume]string{begun: "creating", gone: "deleting"} {
		b.Admin(t, "lvchange", "--deltag", "nodelvm.state=ready", "--addtag", "nodelvm.state="+state, b.Group+"/"+v.ID.LV)
	}
	again := b.Start(t)
	again.WaitWiped(t)
	volumes := again.Volumes(t)
	want := []lvm.Volume{ready, begun}
	slices.SortFunc(want, func(a, b lvm.Volume) int { return strings.Compare(a.ID.String(), b.ID.String()) })
	if !slices.Equal(volumes, want) {
		t.Errorf("after the restart there is %+v, want %+v", volumes, want)
	}
	if m := hosttest.Report(again.Host); hosttest.InState(m, lvm.StateCreating) != 0 {
		t.Errorf("after the restart a volume is still in creation: %+v", m)
	}
}
