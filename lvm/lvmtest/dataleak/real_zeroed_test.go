//go:build reallvm

package dataleak

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

// TestRawDataLeak_RealLVM: neither a new raw block volume nor its expansion shows what its extents held before, whatever wrote
// that.
func TestRawDataLeak_RealLVM(t *testing.T) {
	for name, leave := range map[string]func(testing.TB, hosttest.Fixture, *hosttest.Driver){
		"an admin's pvmove": func(t testing.TB, b hosttest.Fixture, d *hosttest.Driver) {
			v := d.MustCreate(t, b.Spec("secret", 64*lvm.MiB))
			reallvm.FillVolume(t, d, v)
			from := strings.TrimSpace(reallvm.Admin(t, "lvs", "--noheadings", "-o", "devices", reallvm.Group))
			from, _, _ = strings.Cut(from, "(")
			reallvm.Admin(t, "pvmove", "-i", "0", "-n", v.ID.LV, from)
			if now := reallvm.Admin(t, "lvs", "--noheadings", "-o", "devices", reallvm.Group); strings.Contains(now, from+"(") {
				t.Fatalf("%s should have moved from %s and is on %s", v.ID.LV, from, now)
			}
		},
		"an admin's lvremove": func(t testing.TB, b hosttest.Fixture, d *hosttest.Driver) {
			v := d.MustCreate(t, b.Spec("secret", 64*lvm.MiB))
			reallvm.FillVolume(t, d, v)
			reallvm.Admin(t, "lvremove", "-y", reallvm.Group+"/"+v.ID.LV)
		},
		"an admin's lvconvert --replace": func(t testing.TB, b hosttest.Fixture, d *hosttest.Driver) {
			spec := b.Spec("secret", 32*lvm.MiB)
			spec.Class = b.In(lvm.Class{Layout: lvm.LayoutRAID1})
			v := d.MustCreate(t, spec)
			reallvm.FillVolume(t, d, v)
			reallvm.Admin(t, "lvconvert", "-y", "--replace", reallvm.Disks()[legDisk(t, v)], reallvm.Group+"/"+v.ID.LV)
		},
		"a thin pool that was removed": func(t testing.TB, b hosttest.Fixture, d *hosttest.Driver) {
			v := d.MustCreate(t, b.Thin("secret", 64*lvm.MiB, lvm.ID{}))
			reallvm.FillVolume(t, d, v)
			hosttest.Must(t, d.Delete(t.Context(), v.ID))
			reallvm.Admin(t, "lvremove", "-y", reallvm.Group+"/"+lvm.DefaultPool)
		},
		"a class that is not wiped": func(t testing.TB, b hosttest.Fixture, d *hosttest.Driver) {
			v := d.MustCreate(t, b.Light("secret", 64*lvm.MiB))
			reallvm.FillVolume(t, d, v)
			hosttest.Must(t, d.Delete(t.Context(), v.ID))
		},
		"a disk with a history": func(t testing.TB, b hosttest.Fixture, d *hosttest.Driver) {
			last := reallvm.Disks()[len(reallvm.Disks())-1]
			reallvm.Admin(t, "vgreduce", reallvm.Group, last)
			reallvm.Admin(t, "pvremove", "-y", last)
			reallvm.Fill(t, last, lvm.Bytes(reallvm.Sizes[len(reallvm.Sizes)-1])*lvm.MiB)
			reallvm.Tool(t, "wipefs", "-a", last)
			reallvm.Admin(t, "vgextend", "-y", reallvm.Group, last)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := reallvm.NewFixture(t).OneAtATime()
			d := b.Start(t)
			leave(t, b, d)
			raw := d.MustCreate(t, rawSpec(b, "raw", 2))
			all := d.MustCapacity(t, b.Class()).Largest
			curious := d.MustCreate(t, rawSpec(b, "curious", lvm.Extents(all/lvmtest.ExtentSize)/2))
			grown, err := d.ExtendBlock(t.Context(), raw.ID, raw.Size+d.MustCapacity(t, b.Class()).Largest, 0)
			hosttest.Must(t, err)
			if left := d.MustCapacity(t, b.Class()).Largest; left > 0 {
				t.Fatalf("the test needs all extents, but %s are free", left)
			}
			for _, v := range []lvm.Volume{curious, grown} {
				device := d.MustActivate(t, v)
				if n := reallvm.Leaks(t, device, v); n > 0 {
					t.Errorf("%d of %s of the raw block volume %s are not zero, %d MiB hold the secret", n, v.Size, v.Name, secrets(t, device))
				}
			}
		})
	}
}

// TestExpansionDoesNotWaitForLock_RealLVM: an lvextend onto extents that are known to be zero fails while another program has LVM's
// lock. The driver repeats it.
func TestExpansionDoesNotWaitForLock_RealLVM(t *testing.T) {
	b := reallvm.NewFixture(t).OneAtATime()
	d := b.Start(t)
	known(t, b, d, 20)
	v := d.MustCreate(t, rawSpec(b, "raw", 2))
	lock, err := os.OpenFile("/run/lock/lvm/V_"+b.Group, os.O_CREATE|os.O_RDWR, 0o600)
	hosttest.Must(t, err)
	hosttest.Must(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	refused := func() bool {
		return slices.ContainsFunc(d.Commands(), func(c lvm.Command) bool { return c.Name == "lvextend" && c.ExitCode == 5 })
	}
	done := make(chan error, 1)
	go func() {
		_, err := d.Extend(t.Context(), v.ID, 4*lvmtest.ExtentSize, 0)
		done <- err
	}()
	eventually(t, refused)
	hosttest.Must(t, lock.Close())
	hosttest.Must(t, <-done)
	if now, err := d.Lookup(t.Context(), v.ID); err != nil || now.Size != 4*lvmtest.ExtentSize {
		t.Errorf("it is %+v, %v", now, err)
	}
}

// legDisk is the index of a disk with a leg of a RAID volume.
func legDisk(t testing.TB, v lvm.Volume) int {
	t.Helper()
	for i, disk := range reallvm.Disks() {
		if strings.Contains(reallvm.Admin(t, "lvs", "-a", "--noheadings", "-o", "devices", reallvm.Group), disk+"(") {
			waitInSync(t, v)
			return i
		}
	}
	t.Fatalf("%s is on none of %v", v.ID.LV, reallvm.Disks())
	return 0
}

func waitInSync(t testing.TB, v lvm.Volume) {
	t.Helper()
	eventually(t, func() bool {
		return strings.HasPrefix(reallvm.Admin(t, "lvs", "--noheadings", "-o", "sync_percent", reallvm.Group+"/"+v.ID.LV), "100")
	})
}

// TestRawDataLeakOfEachLayout_RealLVM: the same for each layout: zeroes written through the volume reach all its legs, whose extents a later
// linear volume gets.
func TestRawDataLeakOfEachLayout_RealLVM(t *testing.T) {
	for _, s := range append(hosttest.Shapes, hosttest.Shape{Class: lvm.Class{Layout: lvm.LayoutLinear}, Legs: 1, Data: 1}) {
		t.Run(s.String(), func(t *testing.T) {
			b := reallvm.NewFixture(t).OneAtATime()
			d := b.Start(t)
			dirt := d.MustCreate(t, b.Light("dirt", d.MustCapacity(t, b.Class()).Largest))
			reallvm.FillVolume(t, d, dirt)
			hosttest.Must(t, d.Delete(t.Context(), dirt.ID))
			spec := lvm.Spec{Name: "raw", Class: b.In(s.Class), Required: 2 * s.Row(), Block: true}
			v := d.MustCreate(t, spec)
			v, err := d.ExtendBlock(t.Context(), v.ID, v.Size+2*s.Row(), 0)
			hosttest.Must(t, err)
			device := d.MustActivate(t, v)
			if n := reallvm.Leaks(t, device, v); n > 0 {
				t.Errorf("%d of %s are not zero", n, v.Size)
			}
		})
	}
}

// zeroings counts the new volumes that were not on known zero extents.
func zeroings(d *hosttest.Driver) (n int) {
	for _, c := range d.Commands() {
		if c.Name == "lvcreate" && slices.Contains(c.Args, "nodelvm.state=zeroing") {
			n++
		}
	}
	return n
}

// TestKnownZeroes_RealLVM: no command of the driver, for any layout, loses the knowledge about other extents.
func TestKnownZeroes_RealLVM(t *testing.T) {
	b := reallvm.NewFixture(t).OneAtATime()
	d := b.Start(t)
	reallvm.Admin(t, "vgchange", "--addtag", fmt.Sprintf("nodelvm.zeroed=%d", b.ReadGroup(t).Seqno+1), reallvm.Group)
	hosttest.Must(t, d.Ready(t.Context()))
	made := 0
	probe := func(what string) {
		t.Helper()
		before := zeroings(d)
		made++
		d.MustRemove(t, d.MustCreate(t, rawSpec(b, fmt.Sprint("probe", made), 1)))
		if zeroings(d) > before {
			t.Errorf("after %s the driver zeroed a raw block volume", what)
		}
	}
	probe("an admin vouched")
	for _, s := range hosttest.Shapes {
		v := d.MustCreate(t, lvm.Spec{Name: "v", Class: b.In(s.Class), Required: s.Row()})
		probe("create: " + s.String())
		d.MustExtend(t, v, 2*s.Row())
		probe("extend: " + s.String())
		d.MustRemove(t, v)
		probe("delete: " + s.String())
	}
	for i := range 3 {
		d.MustCreate(t, b.Light(fmt.Sprint("v", i), 4*lvm.MiB))
	}
	d = b.Start(t)
	probe("three creates with one ready commit, and a restart")
	held := d.MustCreate(t, b.Spec("held", 32*lvm.MiB)) // from the pool, which may take all free extents
	thin := d.MustCreate(t, b.Thin("thin", 8*lvm.MiB, lvm.ID{}))
	d.MustRemove(t, held)
	probe("a wipe")
	hosttest.Must(t, d.Delete(t.Context(), d.MustCreate(t, b.Thin("another", 8*lvm.MiB, lvm.ID{})).ID))
	probe("a thin volume, and its removal")
	sn := d.MustSnapshot(t, "s", thin.ID)
	probe("a snapshot")
	clone := d.MustCreate(t, b.Thin("clone", 8*lvm.MiB, sn.ID))
	probe("a copy of it")
	hosttest.Must(t, d.Delete(t.Context(), clone.ID))
	hosttest.Must(t, d.DeleteSnapshot(t.Context(), sn.ID))
	hosttest.Must(t, d.Delete(t.Context(), thin.ID))
	probe("their removal")
	reallvm.Admin(t, "lvcreate", "-y", "-l", "1", "-n", "foreign", reallvm.Group)
	hosttest.Must(t, d.Ready(t.Context()))
	probe("an admin's lvcreate that was seen")
	before := zeroings(d)
	reallvm.Admin(t, "lvremove", "-y", reallvm.Group+"/foreign")
	reallvm.Admin(t, "vgchange", "--addtag", "x", reallvm.Group)
	d.MustCreate(t, rawSpec(b, "unknown", 4))
	if n := zeroings(d) - before; n != 1 {
		t.Errorf("after two commits of another program the driver zeroed %d raw block volumes, want 1", n)
	}
}
