package alloc_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

func TestPlanChoosesExtents(t *testing.T) {
	g := fixture.TestGroup("vg", []lvm.Run{{Start: 0, Count: 3}, {Start: 10, Count: 8}}, []lvm.Run{{Start: 5, Count: 4}, {Start: 50, Count: 20}})
	for _, test := range []struct {
		Extents lvm.Extents
		Want    []string
	}{
		{1, []string{"/dev/vga:0-0"}},
		{3, []string{"/dev/vga:0-2"}},
		{4, []string{"/dev/vgb:5-8"}},
		{5, []string{"/dev/vga:10-14"}},
		{9, []string{"/dev/vgb:50-58"}},
		{22, []string{"/dev/vgb:50-69:5-6"}},
		{24, []string{"/dev/vgb:50-69:5-8"}},
		{35, []string{"/dev/vgb:50-69:5-8", "/dev/vga:10-17:0-2"}},
	} {
		p := fixture.Planned(t, lvm.State{Groups: []lvm.Group{g}}, fixture.TestSpec("a", "vg", lvm.Bytes(test.Extents)*4*lvm.MiB))[0]
		if p.Create == nil {
			t.Fatalf("%d extents: %+v", test.Extents, p)
		}
		if got := lvmcmd.RangeArgs(p.Create.Ranges); !slices.Equal(got, test.Want) {
			t.Errorf("%d extents: %v, want %v", test.Extents, got, test.Want)
		}
	}
}

// TestPlanKeepsLinearOnOneDisk: a volume is on one disk if any disk holds it, though the largest free ranges are on several.
func TestPlanKeepsLinearOnOneDisk(t *testing.T) {
	pieces := []lvm.Run{{Start: 0, Count: 6}, {Start: 10, Count: 6}, {Start: 20, Count: 6}}
	large := []lvm.Run{{Start: 0, Count: 15}}
	halves := []lvm.Run{{Start: 0, Count: 9}, {Start: 20, Count: 9}}
	for name, test := range map[string]struct {
		disks   [][]lvm.Run
		extents lvm.Extents
		want    []string
	}{
		"pieces of one disk before a large range and a piece": {[][]lvm.Run{pieces, large}, 17, []string{"/dev/vga:0-5:10-15:20-24"}},
		"the disk with fewer pieces":                          {[][]lvm.Run{pieces, halves}, 17, []string{"/dev/vgb:0-8:20-27"}},
		"one range, if it is large enough":                    {[][]lvm.Run{pieces, large}, 15, []string{"/dev/vgb:0-14"}},
		"two disks, if none is large enough":                  {[][]lvm.Run{pieces, large}, 19, []string{"/dev/vgb:0-14", "/dev/vga:20-23"}},
	} {
		g := fixture.TestGroup("vg", test.disks...)
		p := fixture.Planned(t, lvm.State{Groups: []lvm.Group{g}}, fixture.TestSpec("a", "vg", lvm.Bytes(test.extents)*4*lvm.MiB))[0]
		if got := lvmcmd.RangeArgs(p.Create.Ranges); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestPlanChoosesGroup(t *testing.T) {
	small, large := fixture.TestGroup("small", []lvm.Run{{Start: 0, Count: 10}}), fixture.TestGroup("large", []lvm.Run{{Start: 0, Count: 50}})
	s := lvm.State{Groups: []lvm.Group{large, small}}
	for extents, want := range map[lvm.Extents]string{1: "small", 10: "small", 11: "large", 50: "large"} {
		if p := fixture.Planned(t, s, fixture.TestSpec("a", "@fast", lvm.Bytes(extents)*4*lvm.MiB))[0]; string(p.Create.Group.Name) != want {
			t.Errorf("%d extents go to %s, want %s", extents, p.Create.Group.Name, want)
		}
	}
	_, err := alloc.Plan(s, fixture.TestCluster, []lvm.Spec{fixture.TestSpec("a", "@fast", 51*4*lvm.MiB)})
	if lvm.KindOf(err) != lvm.KindInsufficientCapacity || !strings.Contains(err.Error(), "small has capacity for a volume of at most 40 MiB") || !strings.Contains(err.Error(), "large has capacity for a volume of at most 200 MiB") {
		t.Errorf("no group has the room: %v", err)
	}
}

func TestPlanSeveral(t *testing.T) {
	s := lvm.State{Groups: []lvm.Group{fixture.TestGroup("vg", []lvm.Run{{Start: 0, Count: 10}})}}
	before := s.Clone()
	ps := fixture.Planned(t, s, fixture.TestSpec("a", "vg", 16*lvm.MiB), fixture.TestSpec("b", "vg", 24*lvm.MiB), fixture.TestSpec("a", "vg", 16*lvm.MiB))
	if ps[0].Create.Ranges[0].Last >= ps[1].Create.Ranges[0].First {
		t.Errorf("two volumes on the same extents: %v, %v", ps[0].Create.Ranges, ps[1].Create.Ranges)
	}
	if ps[2].Ready == nil {
		t.Errorf("the same volume twice is planned twice: %+v", ps[2])
	}
	if _, err := alloc.Plan(s, fixture.TestCluster, []lvm.Spec{fixture.TestSpec("a", "vg", 16*lvm.MiB), fixture.TestSpec("b", "vg", 28*lvm.MiB)}); lvm.KindOf(err) != lvm.KindInsufficientCapacity {
		t.Errorf("two volumes of 11 extents in 10: %v", err)
	}
	if diff := cmp.Diff(before, s); diff != "" {
		t.Errorf("planning changed the state: %s", diff)
	}
}

func TestPlanFindsVolume(t *testing.T) {
	g := fixture.TestGroup("vg", []lvm.Run{{Start: 10, Count: 90}})
	other := fixture.TestGroup("other", []lvm.Run{{Start: 0, Count: 100}})
	foreign := g
	foreign.LVs = []lvm.LV{{UUID: "x", Name: lvm.LVName("a"), Extents: 2}}
	damaged := fixture.Holding(g, "a", 2, fixture.Unchanged)
	damaged.LVs[0].Tags = append(damaged.LVs[0].Tags, "nodelvm.v=2")
	damaged.Decode()
	pending := lvm.State{Groups: []lvm.Group{fixture.Holding(g, "a", 2, func(v *lvm.Volume) { v.State = lvm.StateCreating }), other}}
	pending.Groups[0].LVs[0].Pending = true
	with := func(change func(*lvm.Volume)) lvm.State {
		return lvm.State{Groups: []lvm.Group{fixture.Holding(g, "a", 2, change), other}}
	}
	spec := fixture.TestSpec("a", "vg", 8*lvm.MiB)
	elsewhere := fixture.TestSpec("a", "other", 8*lvm.MiB)
	for _, test := range []struct {
		What string
		S    lvm.State
		Spec lvm.Spec
		Kind lvm.Kind
		Want string // the field of the placement that is set; "" for an error
	}{
		{"absent", lvm.State{Groups: []lvm.Group{g}}, spec, 0, "carve"},
		{"ready", with(fixture.Unchanged), spec, 0, "ready"},
		{"creating", with(func(v *lvm.Volume) { v.State = lvm.StateCreating }), spec, 0, "finish"},
		{"creating, of another size", with(func(v *lvm.Volume) { v.State = lvm.StateCreating }), fixture.TestSpec("a", "vg", 8*lvm.MiB+1), lvm.KindExists, ""},
		{"cut off", pending, spec, 0, "leftover"},
		{"deleting", with(func(v *lvm.Volume) { v.State = lvm.StateDeleting }), spec, lvm.KindBusy, ""},
		{"larger wanted", with(fixture.Unchanged), fixture.TestSpec("a", "vg", 8*lvm.MiB+1), lvm.KindExists, ""},
		{"in another group", with(fixture.Unchanged), elsewhere, lvm.KindExists, ""},
		{"of another cluster", with(func(v *lvm.Volume) { v.Cluster = "cluster-2" }), spec, lvm.KindExists, ""},
		{"of another name", with(func(v *lvm.Volume) { v.Name = "b" }), spec, lvm.KindExists, ""},
		{"with another wipe", with(func(v *lvm.Volume) { v.Class.Wipe = lvm.WipeNone }), spec, lvm.KindExists, ""},
		{"foreign", lvm.State{Groups: []lvm.Group{foreign, other}}, spec, lvm.KindExists, ""},
		{"foreign elsewhere", lvm.State{Groups: []lvm.Group{foreign, other}}, elsewhere, 0, "carve"},
		{"damaged", lvm.State{Groups: []lvm.Group{damaged}}, spec, lvm.KindExists, ""},
	} {
		t.Run(test.What, func(t *testing.T) {
			ps, err := alloc.Plan(test.S, fixture.TestCluster, []lvm.Spec{test.Spec})
			if test.Want == "" {
				if err == nil || lvm.KindOf(err) != test.Kind {
					t.Errorf("%+v, kind %d, %v; want kind %d", ps, lvm.KindOf(err), err, test.Kind)
				}
				return
			}
			fixture.Must(t, err)
			p := ps[0]
			got := map[string]bool{"ready": p.Ready != nil, "finish": p.Finish != nil, "leftover": p.Leftover != nil, "carve": p.Create != nil}
			want := map[string]bool{"ready": false, "finish": false, "leftover": false, "carve": false}
			want[test.Want] = true
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestConflictNamesSizes: if a volume exists with another size, the error shows two sizes that differ.
func TestConflictNamesSizes(t *testing.T) {
	s := lvm.State{Groups: []lvm.Group{fixture.Holding(fixture.TestGroup("vg", []lvm.Run{{Start: 10, Count: 90}}), "a", 2, fixture.Unchanged)}}
	_, err := alloc.Plan(s, fixture.TestCluster, []lvm.Spec{fixture.TestSpec("a", "vg", 8*lvm.MiB+1)})
	if err == nil || !strings.Contains(err.Error(), "with 8388608 bytes, less than the requested 8388609 bytes") {
		t.Errorf("the error of the conflict is %v", err)
	}
}

// TestUnallocatableGroups: an error says why a volume group can have no new volume, and what to do; capacity is 0 then.
func TestUnallocatableGroups(t *testing.T) {
	for what, test := range map[string]struct {
		Change func(*lvm.Group)
		Words  string
	}{
		"a problem":      {func(g *lvm.Group) { g.Problem = "it is exported" }, "exported"},
		"a missing disk": {func(g *lvm.Group) { g.PVs[0].Missing = true; g.PVs[0].Device = "" }, "vgreduce --removemissing"},
		"a returned disk": {func(g *lvm.Group) {
			g.PVs[0].Missing, g.PVs[0].ReappearedDevice, g.PVs[0].Device = true, "/dev/sdx", ""
		},
			"vgextend --restoremissing vg /dev/sdx"},
		"a full area": {func(g *lvm.Group) { g.MDAFree = 16 * lvm.KiB }, "add disks with larger ones (pvcreate --metadatasize 64m) and move all extents to them"},
		"a long name": {func(g *lvm.Group) { g.Name = lvm.VGName(strings.Repeat("long", 20)) }, "too long"},
	} {
		t.Run(what, func(t *testing.T) {
			g := fixture.TestGroup("vg", []lvm.Run{{Start: 0, Count: 50}}, []lvm.Run{{Start: 0, Count: 50}})
			test.Change(&g)
			s := lvm.State{Groups: []lvm.Group{g}}
			_, err := alloc.Plan(s, fixture.TestCluster, []lvm.Spec{fixture.TestSpec("a", g.Name, lvm.MiB)})
			if err == nil || lvm.KindOf(err) != lvm.KindInsufficientCapacity || !strings.Contains(err.Error(), test.Words) {
				t.Errorf("%v; want it to say %q", err, test.Words)
			}
			if c, err := alloc.Capacity(s, lvm.Class{Group: string(g.Name)}); err != nil || c != (lvm.Capacity{}) {
				t.Errorf("capacity %+v, %v", c, err)
			}
		})
	}
	twins := lvm.State{Groups: []lvm.Group{fixture.TestGroup("vg", []lvm.Run{{Start: 0, Count: 50}}), fixture.TestGroup("vg", []lvm.Run{{Start: 0, Count: 50}})}}
	if _, err := alloc.Plan(twins, fixture.TestCluster, []lvm.Spec{fixture.TestSpec("a", "vg", lvm.MiB)}); lvm.KindOf(err) != lvm.KindInsufficientCapacity || !strings.Contains(err.Error(), "vgrename") {
		t.Errorf("two groups of one name: %v", err)
	}
	closed := fixture.TestGroup("vg", []lvm.Run{{Start: 0, Count: 50}}, []lvm.Run{{Start: 0, Count: 40}})
	closed.PVs[0].Allocatable = false
	if c, err := alloc.Capacity(lvm.State{Groups: []lvm.Group{closed}}, lvm.Class{Group: "vg"}); err != nil || c.Largest != 160*lvm.MiB {
		t.Errorf("with one of two disks closed to allocation: %+v, %v", c, err)
	}
}

// TestSourceDescription: an error describes the source of a volume, also of an empty one.
func TestSourceDescription(t *testing.T) {
	g := fixture.TestGroup("vg-data", []lvm.Run{{Start: 0, Count: 100}})
	snapshot := lvm.ID{VG: g.UUID, LV: lvm.SnapshotName("s")}
	spec := lvm.Spec{Name: "v", Class: lvm.Class{Group: "vg-data"}, Source: snapshot}
	v := lvm.Volume{ID: lvm.ID{VG: g.UUID, LV: lvm.LVName("v")}, Group: "vg-data"}
	err := alloc.Compatible(v, spec, []lvm.Group{g})
	want := "it was created as an empty volume, and the request is for a copy of the snapshot " + snapshot.LV
	if lvm.KindOf(err) != lvm.KindExists || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
