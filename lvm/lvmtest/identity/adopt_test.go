package identity

import (
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// TestAdopt: a volume of each layout that has lost its tags is adopted with its layout and data; adopting it again changes
// nothing.
func TestAdopt(t *testing.T) {
	for _, class := range []lvm.Class{
		{Layout: lvm.LayoutLinear}, {Layout: lvm.LayoutStriped}, {Layout: lvm.LayoutRAID1}, {Layout: lvm.LayoutRAID5},
		{Layout: lvm.LayoutRAID6}, {Layout: lvm.LayoutRAID10}, {Layout: lvm.LayoutThin},
	} {
		t.Run(string(class.Layout), func(t *testing.T) {
			node := lvmtest.NewNode(lvmtest.Group{Name: "vg", Disks: slices.Repeat([]lvm.Bytes{lvm.GiB}, 6)})
			host := hosttest.StartDriver(t, node, lvm.Config{})
			class.Group = "vg"
			made := host.MustCreate(t, lvm.Spec{Name: "a", Class: class, Required: 60 * lvm.MiB})
			host.MustActivate(t, made) // tags it as ready
			hosttest.Untag(node, "vg", made.ID.LV)
			if all, err := host.ManagedVolumes(t.Context()); err != nil || len(all.Owned) != 0 || !all.Groups[made.ID.VG] {
				t.Fatalf("without tags it is a managed volume: %+v, %v", all, err)
			}
			marked, err := host.Adopt(t.Context(), "vg", made.ID.LV, "mine", "shop/data-0")
			hosttest.Must(t, err)
			want := made
			want.Name, want.Claim, want.FormatMark = "mine", "shop/data-0", 0
			if marked != want {
				t.Errorf("adopted\n%+v\nwant\n%+v", marked, want)
			}
			again, err := host.Adopt(t.Context(), "vg", made.ID.LV, "other", "")
			hosttest.Must(t, err)
			if again != marked {
				t.Errorf("adopted again, it is %+v", again)
			}
			if all, err := host.ManagedVolumes(t.Context()); err != nil || len(all.Owned) != 1 || all.Owned[0].Volume != marked || all.Owned[0].Foreign || all.Owned[0].Snapshot {
				t.Errorf("managed volumes: %+v, %v", all, err)
			}
			hosttest.Must(t, host.Delete(t.Context(), made.ID))
		})
	}
}

// TestAdoptRefuses: Adopt refuses what is part of something else, and changes nothing.
func TestAdoptRefuses(t *testing.T) {
	node := lvmtest.NewNode(lvmtest.Group{Name: "vg", Disks: []lvm.Bytes{lvm.GiB, lvm.GiB}})
	host := hosttest.StartDriver(t, node, lvm.Config{})
	create := func(name string, layout lvm.Layout) lvm.Volume {
		return host.MustCreate(t, lvm.Spec{Name: name, Class: lvm.Class{Group: "vg", Layout: layout}, Required: 60 * lvm.MiB})
	}
	origin := create("a", lvm.LayoutThin)
	snapshot := host.MustSnapshot(t, "s", origin.ID)
	hosttest.Untag(node, "vg", origin.ID.LV)
	node.Change("vg", func(g *lvm.Group) {
		g.LVs = append(g.LVs, lvm.LV{UUID: "c", Name: "cached", Extents: 1, Type: "cache", Segments: []lvm.Segment{{Extents: 1, Type: "cache"}}},
			lvm.LV{UUID: "d", Name: "s-mine", Extents: 1, Type: "linear", Segments: []lvm.Segment{{Extents: 1, Type: "linear"}}})
	})
	going := create("going", lvm.LayoutLinear)
	host.MustActivate(t, going) // tags it as ready
	node.Change("vg", func(g *lvm.Group) {
		lv := &g.LVs[slices.IndexFunc(g.LVs, func(lv lvm.LV) bool { return lv.Name == going.ID.LV })]
		lv.Tags[slices.Index(lv.Tags, "nodelvm.state=ready")] = "nodelvm.state=deleting"
	})
	before := node.Group("vg").Seqno
	for name, kind := range map[string]lvm.Kind{
		"nothing": lvm.KindNotFound, lvm.DefaultPool: lvm.KindConflict, lvm.DefaultPool + "_tdata": lvm.KindNotFound,
		"cached": lvm.KindConflict, "s-mine": lvm.KindConflict, snapshot.ID.LV: lvm.KindConflict,
		going.ID.LV: lvm.KindNotFound, // the driver wipes it
	} {
		hosttest.Refused(t, name, kind)(host.Adopt(t.Context(), "vg", name, "mine", ""))
	}
	if after := node.Group("vg").Seqno; after != before {
		t.Errorf("the group changed %d times", after-before)
	}
	open := create("open", lvm.LayoutLinear)
	device := host.MustActivate(t, open)
	hosttest.Untag(node, "vg", open.ID.LV)
	release := node.Hold(device)
	_, err := host.Adopt(t.Context(), "vg", open.ID.LV, "mine", "")
	hosttest.WantKind(t, "an open one", err, lvm.KindInUse)
	if err != nil && (!strings.Contains(err.Error(), "cannot be adopted") || strings.Contains(err.Error(), "deleted")) {
		t.Errorf("an open one: %v", err)
	}
	release()
	hosttest.Refused(t, "another group", lvm.KindNotFound)(host.Adopt(t.Context(), "other", "a", "mine", ""))
	elsewhere := node.Start(t, lvm.Config{Cluster: "another"})
	all, err := elsewhere.ManagedVolumes(t.Context())
	if err != nil || len(all.Owned) != 1 || !all.Owned[0].Foreign || !all.Owned[0].Snapshot {
		t.Errorf("another cluster sees %+v, %v", all, err)
	}
}
