//go:build reallvm

package lvmtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestRawDataLeak_RealLVM: neither a new raw block volume nor its expansion shows what its extents held before, whatever wrote
// that.
func TestRawDataLeak_RealLVM(t *testing.T) {
	for name, leave := range map[string]func(testing.TB, Fixture, *Driver){
		"an admin's pvmove": func(t testing.TB, b Fixture, d *Driver) {
			v := d.create(t, b.spec("secret", 64*lvm.MiB))
			fillVolume(t, d, v)
			from := strings.TrimSpace(admin(t, "lvs", "--noheadings", "-o", "devices", realGroup))
			from, _, _ = strings.Cut(from, "(")
			admin(t, "pvmove", "-i", "0", "-n", v.ID.LV, from)
			if now := admin(t, "lvs", "--noheadings", "-o", "devices", realGroup); strings.Contains(now, from+"(") {
				t.Fatalf("%s should have moved from %s and is on %s", v.ID.LV, from, now)
			}
		},
		"an admin's lvremove": func(t testing.TB, b Fixture, d *Driver) {
			v := d.create(t, b.spec("secret", 64*lvm.MiB))
			fillVolume(t, d, v)
			admin(t, "lvremove", "-y", realGroup+"/"+v.ID.LV)
		},
		"an admin's lvconvert --replace": func(t testing.TB, b Fixture, d *Driver) {
			spec := b.spec("secret", 32*lvm.MiB)
			spec.Class = b.in(lvm.Class{Layout: lvm.LayoutRAID1})
			v := d.create(t, spec)
			fillVolume(t, d, v)
			admin(t, "lvconvert", "-y", "--replace", realDisks[legDisk(t, d, v)], realGroup+"/"+v.ID.LV)
		},
		"a thin pool that was removed": func(t testing.TB, b Fixture, d *Driver) {
			v := d.create(t, b.thin("secret", 64*lvm.MiB, lvm.ID{}))
			fillVolume(t, d, v)
			must(t, d.Delete(t.Context(), v.ID))
			admin(t, "lvremove", "-y", realGroup+"/"+lvm.DefaultPool)
		},
		"an empty thin pool that the driver removed": func(t testing.TB, b Fixture, d *Driver) {
			v := d.create(t, b.thin("secret", 64*lvm.MiB, lvm.ID{}))
			fillVolume(t, d, v)
			must(t, d.Delete(t.Context(), v.ID))
			must(t, d.ExtendThinPools(t.Context()))
			if lvs := b.group(t).LVs; len(lvs) > 0 {
				t.Fatalf("the pool still exists: %+v", lvs)
			}
		},
		"a class that is not wiped": func(t testing.TB, b Fixture, d *Driver) {
			v := d.create(t, b.light("secret", 64*lvm.MiB))
			fillVolume(t, d, v)
			must(t, d.Delete(t.Context(), v.ID))
		},
		"a disk with a history": func(t testing.TB, b Fixture, d *Driver) {
			last := realDisks[len(realDisks)-1]
			admin(t, "vgreduce", realGroup, last)
			admin(t, "pvremove", "-y", last)
			fill(t, last, lvm.Bytes(realSizes[len(realSizes)-1])*lvm.MiB)
			tool(t, "wipefs", "-a", last)
			admin(t, "vgextend", "-y", realGroup, last)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := realFixture(t).oneAtATime()
			d := b.Start(t)
			leave(t, b, d)
			raw := d.create(t, b.raw("raw", 2))
			all := d.capacity(t, b.class()).Largest
			curious := d.create(t, b.raw("curious", lvm.Extents(all/ExtentSize)/2))
			grown, err := d.ExtendBlock(t.Context(), raw.ID, raw.Size+d.capacity(t, b.class()).Largest, 0)
			must(t, err)
			if left := d.capacity(t, b.class()).Largest; left > 0 {
				t.Fatalf("the test needs all extents, but %s are free", left)
			}
			for _, v := range []lvm.Volume{curious, grown} {
				device, err := d.Activate(t.Context(), v.ID, v.UUID)
				must(t, err)
				if n := leaks(t, device); n > 0 {
					t.Errorf("%d of %s of the raw block volume %s are not zero, %d MiB hold the secret", n, v.Size, v.Name, secrets(t, device))
				}
			}
		})
	}
}

// legDisk is the index of a disk with a leg of a RAID volume.
func legDisk(t testing.TB, d *Driver, v lvm.Volume) int {
	t.Helper()
	for i, disk := range realDisks {
		if strings.Contains(admin(t, "lvs", "-a", "--noheadings", "-o", "devices", realGroup), disk+"(") {
			waitInSync(t, d, v)
			return i
		}
	}
	t.Fatalf("%s is on none of %v", v.ID.LV, realDisks)
	return 0
}

func waitInSync(t testing.TB, _ *Driver, v lvm.Volume) {
	t.Helper()
	eventually(t, func() bool {
		return strings.HasPrefix(admin(t, "lvs", "--noheadings", "-o", "sync_percent", realGroup+"/"+v.ID.LV), "100")
	})
}

// TestRawDataLeakOfEachLayout_RealLVM: the same for each layout: zeroes written through the volume reach all its legs, whose extents a later
// linear volume gets.
func TestRawDataLeakOfEachLayout_RealLVM(t *testing.T) {
	for _, s := range append(shapes, shape{class: lvm.Class{Layout: lvm.LayoutLinear}, legs: 1, data: 1}) {
		t.Run(s.String(), func(t *testing.T) {
			b := realFixture(t).oneAtATime()
			d := b.Start(t)
			dirt := d.create(t, b.light("dirt", d.capacity(t, b.class()).Largest))
			fillVolume(t, d, dirt)
			must(t, d.Delete(t.Context(), dirt.ID))
			spec := lvm.Spec{Name: "raw", Class: b.in(s.class), Required: 2 * s.row(), Block: true}
			v := d.create(t, spec)
			v, err := d.ExtendBlock(t.Context(), v.ID, v.Size+2*s.row(), 0)
			must(t, err)
			device, err := d.Activate(t.Context(), v.ID, v.UUID)
			must(t, err)
			if n := leaks(t, device); n > 0 {
				t.Errorf("%d of %s are not zero", n, v.Size)
			}
		})
	}
}

// zeroings counts the new volumes that were not on known zero extents.
func (d *Driver) zeroings() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.commands {
		if c.Name == "lvcreate" && slices.Contains(c.Args, "nodelvm.state=zeroing") {
			n++
		}
	}
	return n
}

// TestKnownZeroes_RealLVM: no command of the driver, for any layout, loses the knowledge about other extents.
func TestKnownZeroes_RealLVM(t *testing.T) {
	b := realFixture(t).oneAtATime()
	d := b.Start(t)
	admin(t, "vgchange", "--addtag", fmt.Sprintf("nodelvm.zeroed=%d", b.group(t).Seqno+1), realGroup)
	must(t, d.Ready(t.Context()))
	made := 0
	probe := func(what string) {
		t.Helper()
		before := d.zeroings()
		made++
		must(t, d.Delete(t.Context(), d.create(t, b.raw(fmt.Sprint("probe", made), 1)).ID))
		d.waitWiped(t)
		if d.zeroings() > before {
			t.Errorf("after %s the driver zeroed a raw block volume", what)
		}
	}
	probe("an admin vouched")
	for _, s := range shapes {
		v := d.create(t, lvm.Spec{Name: "v", Class: b.in(s.class), Required: s.row()})
		probe("create: " + s.String())
		_, err := d.Extend(t.Context(), v.ID, 2*s.row(), 0)
		must(t, err)
		probe("extend: " + s.String())
		must(t, d.Delete(t.Context(), v.ID))
		d.waitWiped(t)
		probe("delete: " + s.String())
	}
	for i := range 3 {
		d.create(t, b.light(fmt.Sprint("v", i), 4*lvm.MiB))
	}
	d = b.Start(t)
	probe("three creates with one ready commit, and a restart")
	held := d.create(t, b.spec("held", 32*lvm.MiB)) // from the pool, which may take all free extents
	thin := d.create(t, b.thin("thin", 8*lvm.MiB, lvm.ID{}))
	must(t, d.Delete(t.Context(), held.ID))
	d.waitWiped(t)
	probe("a wipe")
	must(t, d.Delete(t.Context(), d.create(t, b.thin("another", 8*lvm.MiB, lvm.ID{})).ID))
	probe("a thin volume, and its removal")
	sn := d.snapshot(t, "s", thin.ID)
	probe("a snapshot")
	clone := d.create(t, b.thin("clone", 8*lvm.MiB, sn.ID))
	probe("a copy of it")
	must(t, d.Delete(t.Context(), clone.ID))
	must(t, d.DeleteSnapshot(t.Context(), sn.ID))
	must(t, d.Delete(t.Context(), thin.ID))
	probe("their removal")
	admin(t, "lvcreate", "-y", "-l", "1", "-n", "foreign", realGroup)
	must(t, d.Ready(t.Context()))
	probe("an admin's lvcreate that was seen")
	before := d.zeroings()
	admin(t, "lvremove", "-y", realGroup+"/foreign")
	admin(t, "vgchange", "--addtag", "x", realGroup)
	d.create(t, b.raw("unknown", 4))
	if n := d.zeroings() - before; n != 1 {
		t.Errorf("after two commits of another program the driver zeroed %d raw block volumes, want 1", n)
	}
}
