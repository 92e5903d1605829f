package identity

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// TestNamesOfRemovedVolumes: without udev an admin's lvm leaves names of managed volumes in /dev/mapper. The driver removes
// each with its volume, without another process, and keeps the names of other volumes.
func TestNamesOfRemovedVolumes(t *testing.T) {
	node := hosttest.NewNode()
	b := hosttest.OnFake(node)
	d := hosttest.StartDriver(t, node, lvm.Config{EmptyPoolsFor: time.Nanosecond, ReadyDelay: time.Hour})
	mirror := b.Light("mirror", 8*lvm.MiB)
	mirror.Class.Layout, mirror.Class.Mirrors = lvm.LayoutRAID1, 1
	specs := map[string]lvm.Spec{"linear": b.Light("linear", 8*lvm.MiB), "wiped": b.Spec("wiped", 8*lvm.MiB), "mirror": mirror}
	d.MustCreate(t, b.Light("kept", 8*lvm.MiB))
	node.Name()
	kept := node.Names()
	for what, spec := range specs {
		v := d.MustCreate(t, spec)
		node.Name()
		most := 1
		if what == "wiped" {
			most = 2
		}
		d.Counted(t, what, most, func() {
			d.MustRemove(t, v)
		})
		// The driver removes the names after the commit that WaitWiped sees.
		if !wait.Holds(wait.Limit(10*time.Second), func() bool { return slices.Equal(node.Names(), kept) }) {
			t.Errorf("%s: with the volume removed, /dev/mapper has %q, want %q", what, node.Names(), kept)
		}
	}
	thin := d.MustCreate(t, b.Thin("thin", 8*lvm.MiB, lvm.ID{}))
	sn := d.MustSnapshot(t, "s", thin.ID)
	node.Name()
	hosttest.Must(t, d.Delete(t.Context(), thin.ID))
	pool := slices.DeleteFunc(node.Names(), func(name string) bool { return slices.Contains(kept, name) })
	if len(pool) == 0 || slices.ContainsFunc(pool, func(name string) bool { return strings.Contains(name, strings.ReplaceAll(thin.ID.LV, "-", "--")) }) {
		t.Errorf("with a thin volume removed and its pool in use, /dev/mapper has %q", pool)
	}
	hosttest.Must(t, d.DeleteSnapshot(t.Context(), sn.ID))
	hosttest.Must(t, d.ExtendThinPools(t.Context())) // removes the pool
	if left := node.Names(); !slices.Equal(left, kept) {
		t.Errorf("with the thin pool removed, /dev/mapper has %q, want %q", left, kept)
	}
}
