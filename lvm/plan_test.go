package lvm

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlanChoosesExtents(t *testing.T) {
	g := testGroup("vg", []Run{{0, 3}, {10, 8}}, []Run{{5, 4}, {50, 20}})
	for _, test := range []struct {
		extents Extents
		want    []string
	}{
		{1, []string{"/dev/vga:0-0"}},
		{3, []string{"/dev/vga:0-2"}},
		{4, []string{"/dev/vgb:5-8"}},
		{5, []string{"/dev/vga:10-14"}},
		{9, []string{"/dev/vgb:50-58"}},
		{22, []string{"/dev/vgb:50-69", "/dev/vga:0-1"}},
		{24, []string{"/dev/vgb:50-69:5-8"}},
		{35, []string{"/dev/vgb:50-69:5-8", "/dev/vga:10-17:0-2"}},
	} {
		p := planned(t, State{Groups: []Group{g}}, testSpec("a", "vg", Bytes(test.extents)*4*MiB))[0]
		if p.carve == nil {
			t.Fatalf("%d extents: %+v", test.extents, p)
		}
		if got := rangeArgs(p.carve.ranges); !slices.Equal(got, test.want) {
			t.Errorf("%d extents: %v, want %v", test.extents, got, test.want)
		}
	}
}

func TestPlanChoosesGroup(t *testing.T) {
	small, large := testGroup("small", []Run{{0, 10}}), testGroup("large", []Run{{0, 50}})
	s := State{Groups: []Group{large, small}}
	for extents, want := range map[Extents]string{1: "small", 10: "small", 11: "large", 50: "large"} {
		if p := planned(t, s, testSpec("a", "@fast", Bytes(extents)*4*MiB))[0]; p.carve.group.Name != want {
			t.Errorf("%d extents go to %s, want %s", extents, p.carve.group.Name, want)
		}
	}
	_, err := plan(s, testCluster, []Spec{testSpec("a", "@fast", 51*4*MiB)})
	if KindOf(err) != KindInsufficientCapacity || !strings.Contains(err.Error(), "small can give at most 40 MiB") || !strings.Contains(err.Error(), "large can give at most 200 MiB") {
		t.Errorf("no group has the room: %v", err)
	}
}

func TestPlanSeveral(t *testing.T) {
	s := State{Groups: []Group{testGroup("vg", []Run{{0, 10}})}}
	before := s.clone()
	ps := planned(t, s, testSpec("a", "vg", 16*MiB), testSpec("b", "vg", 24*MiB), testSpec("a", "vg", 16*MiB))
	if ps[0].carve.ranges[0].last >= ps[1].carve.ranges[0].first {
		t.Errorf("two volumes on the same extents: %v, %v", ps[0].carve.ranges, ps[1].carve.ranges)
	}
	if ps[2].ready == nil {
		t.Errorf("the same volume twice is planned twice: %+v", ps[2])
	}
	if _, err := plan(s, testCluster, []Spec{testSpec("a", "vg", 16*MiB), testSpec("b", "vg", 28*MiB)}); KindOf(err) != KindInsufficientCapacity {
		t.Errorf("two volumes of 11 extents in 10: %v", err)
	}
	if diff := cmp.Diff(before, s); diff != "" {
		t.Errorf("planning changed the state: %s", diff)
	}
}

func TestPlanFindsVolume(t *testing.T) {
	g := testGroup("vg", []Run{{10, 90}})
	other := testGroup("other", []Run{{0, 100}})
	foreign := g
	foreign.LVs = []LV{{UUID: "x", Name: lvName("a"), Extents: 2}}
	damaged := holding(g, "a", 2, unchanged)
	damaged.LVs[0].Tags = append(damaged.LVs[0].Tags, "nodelvm.v=2")
	pending := State{Groups: []Group{holding(g, "a", 2, func(v *Volume) { v.State = StateCreating }), other}}
	pending.Groups[0].LVs[0].Pending = true
	with := func(change func(*Volume)) State { return State{Groups: []Group{holding(g, "a", 2, change), other}} }
	spec := testSpec("a", "vg", 8*MiB)
	elsewhere := testSpec("a", "other", 8*MiB)
	for _, test := range []struct {
		what string
		s    State
		spec Spec
		kind Kind
		want string // which field of the placement is set; "" for an error
	}{
		{"absent", State{Groups: []Group{g}}, spec, 0, "carve"},
		{"ready", with(unchanged), spec, 0, "ready"},
		{"creating", with(func(v *Volume) { v.State = StateCreating }), spec, 0, "finish"},
		{"creating, of another size", with(func(v *Volume) { v.State = StateCreating }), testSpec("a", "vg", 8*MiB+1), KindExists, ""},
		{"cut off", pending, spec, 0, "leftover"},
		{"deleting", with(func(v *Volume) { v.State = StateDeleting }), spec, KindBusy, ""},
		{"larger wanted", with(unchanged), testSpec("a", "vg", 8*MiB+1), KindExists, ""},
		{"in another group", with(unchanged), elsewhere, KindExists, ""},
		{"of another cluster", with(func(v *Volume) { v.Cluster = "cluster-2" }), spec, KindExists, ""},
		{"of another name", with(func(v *Volume) { v.Name = "b" }), spec, KindExists, ""},
		{"with another wipe", with(func(v *Volume) { v.Class.Wipe = WipeNone }), spec, KindExists, ""},
		{"foreign", State{Groups: []Group{foreign, other}}, spec, KindExists, ""},
		{"foreign elsewhere", State{Groups: []Group{foreign, other}}, elsewhere, 0, "carve"},
		{"damaged", State{Groups: []Group{damaged}}, spec, KindExists, ""},
	} {
		t.Run(test.what, func(t *testing.T) {
			ps, err := plan(test.s, testCluster, []Spec{test.spec})
			if test.want == "" {
				if err == nil || KindOf(err) != test.kind {
					t.Errorf("%+v, kind %d, %v; want kind %d", ps, KindOf(err), err, test.kind)
				}
				return
			}
			must(t, err)
			p := ps[0]
			got := map[string]bool{"ready": p.ready != nil, "finish": p.finish != nil, "leftover": p.leftover != nil, "carve": p.carve != nil}
			want := map[string]bool{"ready": false, "finish": false, "leftover": false, "carve": false}
			want[test.want] = true
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestConflictNamesSizes: where a volume is there with another size, both are told so that they differ.
func TestConflictNamesSizes(t *testing.T) {
	s := State{Groups: []Group{holding(testGroup("vg", []Run{{10, 90}}), "a", 2, unchanged)}}
	_, err := plan(s, testCluster, []Spec{testSpec("a", "vg", 8*MiB+1)})
	if err == nil || !strings.Contains(err.Error(), "with 8388608 bytes, less than the 8388609 bytes") {
		t.Errorf("the conflict is told as %v", err)
	}
}

// TestObstacles: what forbids creating in a group is said, with a way out, and capacity knows it as well.
func TestObstacles(t *testing.T) {
	for what, test := range map[string]struct {
		change func(*Group)
		words  string
	}{
		"a problem":      {func(g *Group) { g.Problem = "it is exported" }, "exported"},
		"a missing disk": {func(g *Group) { g.PVs[0].Missing = true; g.PVs[0].Device = "" }, "vgreduce --removemissing"},
		"a returned disk": {func(g *Group) { g.PVs[0].Missing, g.PVs[0].Back, g.PVs[0].Device = true, "/dev/sdx", "" },
			"vgextend --restoremissing vg /dev/sdx"},
		"a full area": {func(g *Group) { g.MDAFree = 16 * KiB }, "add disks with a larger one (pvcreate --metadatasize 64m) and move everything to them"},
		"a long name": {func(g *Group) { g.Name = strings.Repeat("long", 20) }, "too long"},
	} {
		t.Run(what, func(t *testing.T) {
			g := testGroup("vg", []Run{{0, 50}}, []Run{{0, 50}})
			test.change(&g)
			s := State{Groups: []Group{g}}
			_, err := plan(s, testCluster, []Spec{testSpec("a", g.Name, MiB)})
			if err == nil || KindOf(err) != KindInsufficientCapacity || !strings.Contains(err.Error(), test.words) {
				t.Errorf("%v; want it to say %q", err, test.words)
			}
			if c, err := capacity(s, Class{Group: g.Name}); err != nil || c != (Capacity{}) {
				t.Errorf("capacity %+v, %v", c, err)
			}
		})
	}
	twins := State{Groups: []Group{testGroup("vg", []Run{{0, 50}}), testGroup("vg", []Run{{0, 50}})}}
	if _, err := plan(twins, testCluster, []Spec{testSpec("a", "vg", MiB)}); KindOf(err) != KindInsufficientCapacity || !strings.Contains(err.Error(), "vgrename") {
		t.Errorf("two groups of one name: %v", err)
	}
	closed := testGroup("vg", []Run{{0, 50}}, []Run{{0, 40}})
	closed.PVs[0].Allocatable = false
	if c, err := capacity(State{Groups: []Group{closed}}, Class{Group: "vg"}); err != nil || c.Largest != 160*MiB {
		t.Errorf("with one of two disks closed to allocation: %+v, %v", c, err)
	}
}

// TestSourcesInWords: what a volume began as is told in words, also where it began as nothing.
func TestSourcesInWords(t *testing.T) {
	g := testGroup("vg-data", []Run{{0, 100}})
	snapshot := ID{VG: g.UUID, LV: snapshotName("s")}
	spec := Spec{Name: "v", Class: Class{Group: "vg-data"}, Source: snapshot}
	v := Volume{ID: ID{VG: g.UUID, LV: lvName("v")}, Group: "vg-data"}
	err := compatible(v, spec, []Group{g})
	want := "it began as an empty volume, and a copy of the snapshot " + snapshot.LV + " is asked for now"
	if KindOf(err) != KindExists || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
