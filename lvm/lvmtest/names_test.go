package lvmtest

import (
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestNamesOfRemovedVolumes: without udev an admin's lvm leaves names of managed volumes in /dev/mapper. The driver removes
// each with its volume, without another process, and keeps the names of other volumes.
func TestNamesOfRemovedVolumes(t *testing.T) {
	node := newNode()
	b := fakeFixture(node)
	d := newPoolDriver(t, node)
	mirror := b.light("mirror", 8*lvm.MiB)
	mirror.Class.Layout, mirror.Class.Mirrors = lvm.LayoutRAID1, 1
	specs := map[string]lvm.Spec{"linear": b.light("linear", 8*lvm.MiB), "wiped": b.spec("wiped", 8*lvm.MiB), "mirror": mirror}
	d.create(t, b.light("kept", 8*lvm.MiB))
	node.Name()
	kept := node.Names()
	for what, spec := range specs {
		v := d.create(t, spec)
		node.Name()
		most := 1
		if what == "wiped" {
			most = 2
		}
		d.counted(t, what, most, func() {
			must(t, d.Delete(t.Context(), v.ID))
			d.waitWiped(t)
		})
		if left := node.Names(); !slices.Equal(left, kept) {
			t.Errorf("%s: with the volume removed, /dev/mapper has %q, want %q", what, left, kept)
		}
	}
	thin := d.create(t, b.thin("thin", 8*lvm.MiB, lvm.ID{}))
	sn := d.snapshot(t, "s", thin.ID)
	node.Name()
	must(t, d.Delete(t.Context(), thin.ID))
	pool := slices.DeleteFunc(node.Names(), func(name string) bool { return slices.Contains(kept, name) })
	if len(pool) == 0 || slices.ContainsFunc(pool, func(name string) bool { return strings.Contains(name, strings.ReplaceAll(thin.ID.LV, "-", "--")) }) {
		t.Errorf("with a thin volume removed and its pool in use, /dev/mapper has %q", pool)
	}
	must(t, d.DeleteSnapshot(t.Context(), sn.ID))
	d.checkPools(t)
	if left := node.Names(); !slices.Equal(left, kept) {
		t.Errorf("with the thin pool removed, /dev/mapper has %q, want %q", left, kept)
	}
}
