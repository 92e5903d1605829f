package lvmtest

import (
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestVanishedDisk: a disk vanishes while lvcreate runs, which ends well all the same. The volume is not answered before
// the disk is back.
func TestVanishedDisk(t *testing.T) {
	node := newNode()
	b := bed(node)
	away := func(is bool) { node.Change("vg-test", func(g *lvm.Group) { g.PVs[5].Missing = is }) }
	d, pulled := &Driver{}, false
	d.Host = node.Start(t, lvm.Config{Cluster: Cluster, Observe: func(c lvm.Command) {
		d.Observe(c)
		if c.Name == "lvcreate" && !pulled {
			pulled = true
			away(true)
		}
	}})
	spec := b.spec("a", 8*lvm.MiB)
	for range 2 {
		_, err := d.Create(t.Context(), spec)
		wantKind(t, "create without the disk", err, lvm.KindBusy)
	}
	away(false)
	if v := d.create(t, spec); v.State != lvm.StateReady || v.Size != 8*lvm.MiB {
		t.Errorf("created %+v", v)
	}
	if n := len(node.group("vg-test").LVs); n != 1 {
		t.Errorf("there are %d volumes", n)
	}
}
