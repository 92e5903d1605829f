package lvm

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// rangesIn reads the ranges of a command line back.
func rangesIn(t *rapid.T, argv []string) (ranges []peRange) {
	for _, arg := range argv {
		device, rest, found := strings.Cut(arg, ":")
		if !found || !strings.HasPrefix(device, "/dev/") {
			continue
		}
		for part := range strings.SplitSeq(rest, ":") {
			first, last, _ := strings.Cut(part, "-")
			a, err1 := strconv.ParseInt(first, 10, 64)
			b, err2 := strconv.ParseInt(last, 10, 64)
			if err1 != nil || err2 != nil {
				t.Fatalf("%q", arg)
			}
			ranges = append(ranges, peRange{device, Extents(a), Extents(b)})
		}
	}
	return ranges
}

func snapshotted(t testing.TB, s State, name string, v Volume, state VolumeState) Snapshot {
	t.Helper()
	p, err := planSnapshot(s, testCluster, SnapshotSpec{Name: name, Source: v.ID})
	must(t, err)
	if p.snapshot.Name == "" {
		t.Fatalf("%+v", p)
	}
	p.snapshot.State = state
	g := &s.Groups[0]
	g.LVs = append(g.LVs, LV{Name: p.snapshot.ID.LV, UUID: "uuid-" + name, Tags: snapshotTags(p.snapshot), Type: "thin",
		Pool: v.Class.Pool, Origin: v.ID.LV, Extents: Extents(v.Size / g.ExtentSize)})
	sn, ours, err := snapshotOf(*g, g.LVs[len(g.LVs)-1])
	must(t, err)
	want := p.snapshot
	want.UUID = "uuid-" + name
	if diff := cmp.Diff(want, sn); diff != "" || !ours {
		t.Fatalf("read back: %s", diff)
	}
	if _, ours, err := volumeOf(*g, g.LVs[len(g.LVs)-1]); ours || err != nil {
		t.Fatalf("a snapshot is taken for a volume: %v", err)
	}
	return sn
}

// TestPlanSnapshot: what is there, what is not, and what may not be.
func TestPlanSnapshot(t *testing.T) {
	s := fiveDisks()
	v := newVolume(t, s, specIn("a", thinClass, 100*MiB))
	thick := newVolume(t, s, specIn("thick", Class{}, 8*MiB))
	newVolume(t, s, specIn("b", thinClass, 100*MiB))
	p, err := planSnapshot(s, testCluster, SnapshotSpec{Name: "new", Source: v.ID})
	want := []string{"lvcreate -an -ky -pr -s -n " + snapshotName("new") + " --addtag nodelvm.v=1 --addtag nodelvm.kind=snapshot --addtag nodelvm.state=creating" +
		" --addtag nodelvm.cluster=cluster-1 --addtag nodelvm.name=new --addtag nodelvm.source=" + v.ID.LV + " -- vg/" + v.ID.LV}
	if diff := cmp.Diff(want, argvOf(t, snapshotCommands(t, p), err)); diff != "" {
		t.Error(diff)
	}
	ready := snapshotted(t, s, "ready", v, StateReady)
	snapshotted(t, s, "half", v, StateCreating)
	snapshotted(t, s, "leaving", v, StateDeleting)
	for name, want := range map[string]string{"ready": "ready", "half": "leftover", "other": "steps"} {
		p, err := planSnapshot(s, testCluster, SnapshotSpec{Name: name, Source: v.ID})
		got := map[bool]string{p.ready != nil: "ready", p.leftover != nil: "leftover", p.snapshot.Name != "": "steps"}[true]
		if err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", name, got, err, want)
		}
	}
	if p, err := planSnapshot(s, testCluster, SnapshotSpec{Name: "ready", Source: v.ID}); err != nil || *p.ready != ready {
		t.Errorf("%+v, %v; want %+v", p.ready, err, ready)
	}
	gone := ID{VG: v.ID.VG, LV: "pvc-gone"}
	for _, test := range []struct {
		name, cluster string
		source        ID
		kind          Kind
		words         string
	}{
		{"ready", testCluster, thick.ID, KindExists, "of the volume"},
		{"leaving", testCluster, v.ID, KindBusy, "being removed"},
		{"ready", "cluster-2", v.ID, KindExists, "is not it"},
		{"new", "cluster-2", v.ID, KindNotManaged, "cluster-1"},
		{"new", testCluster, thick.ID, KindInvalid, "layout: thin"},
		{"new", testCluster, gone, KindNotFound, "pvc-gone"},
		{"new", testCluster, ID{VG: "elsewhere", LV: "a"}, KindNotLocal, "not on this node"},
		{"new", testCluster, ready.ID, KindNotManaged, "not a volume"},
		{"", testCluster, v.ID, KindInvalid, "name"},
	} {
		if _, err := planSnapshot(s, test.cluster, SnapshotSpec{Name: test.name, Source: test.source}); err == nil || KindOf(err) != test.kind || !strings.Contains(err.Error(), test.words) {
			t.Errorf("%+v: kind %d, %v", test, KindOf(err), err)
		}
	}
}

// TestSnapshotsArePromised: a snapshot may come to hold as much as its volume, so it counts as much; an overprovisioned
// class takes more of them.
func TestSnapshotsArePromised(t *testing.T) {
	for percent, want := range map[int]int{100: 3, 300: 11} {
		s := fiveDisks()
		class := thinClass
		class.Overprovision = percent
		// 496 extents of data in all: a volume of 120 leaves room for 3 more, or 11 at 300 %.
		v := newVolume(t, s, specIn("a", class, 480*MiB))
		n := 0
		for ; ; n++ {
			p, err := planSnapshot(s, testCluster, SnapshotSpec{Name: fmt.Sprint(n), Source: v.ID})
			if err != nil {
				if KindOf(err) != KindInsufficientCapacity {
					t.Fatal(err)
				}
				break
			}
			g := &s.Groups[0]
			for _, step := range poolCommands(t, p.pool) { // the pool grows
				for i := range g.LVs {
					if g.LVs[i].Thin != nil {
						g.LVs[i].Extents = 496
					}
				}
				for i := range g.PVs {
					g.PVs[i].Free = nil
				}
				if step.argv[0] != "lvextend" {
					t.Fatalf("%q", step.argv)
				}
			}
			snapshotted(t, s, fmt.Sprint(n), v, StateReady)
		}
		if n != want {
			t.Errorf("%d snapshots at %d %%, want %d", n, percent, want)
		}
	}
}

// TestPlanCopy: a copy begins from a snapshot or a volume of its own pool, and is no smaller.
func TestPlanCopy(t *testing.T) {
	s := fiveDisks()
	thick := newVolume(t, s, specIn("thick", Class{}, 8*MiB))
	v := newVolume(t, s, specIn("a", thinClass, 100*MiB))
	other := newVolume(t, s, specIn("b", Class{Layout: LayoutThin, Pool: "second"}, 4*MiB))
	sn := snapshotted(t, s, "snap", v, StateReady)
	half := snapshotted(t, s, "half", v, StateCreating)
	copyOf := func(source ID, required, limit Bytes) Spec {
		return Spec{Name: "copy", Class: Class{Group: "@fast", Layout: LayoutThin}, Required: required, Limit: limit, Source: source}
	}
	name := lvName("copy")
	create := "lvcreate -ay -kn -prw -s -n " + name + " --addtag nodelvm.v=1 --addtag nodelvm.state=creating --addtag nodelvm.cluster=cluster-1" +
		" --addtag nodelvm.name=copy --addtag nodelvm.lv=" + name + " --addtag nodelvm.layout=thin --addtag nodelvm.overprovision=100 --addtag nodelvm.source=SOURCE -- vg/SOURCE"
	for _, test := range []struct {
		spec Spec
		want []string
	}{
		{copyOf(sn.ID, 0, 0), []string{create}},
		{copyOf(v.ID, 100*MiB, 100*MiB), []string{create}},
		{copyOf(sn.ID, 101*MiB, 0), []string{create, "lvextend --alloc normal -l 26 -- vg/" + name}},
	} {
		p := planned(t, s, test.spec)[0]
		steps, err := createSteps(p.carve)
		got := strings.ReplaceAll(strings.Join(argvOf(t, steps, err), "\n"), test.spec.Source.LV, "SOURCE")
		if diff := cmp.Diff(strings.Join(test.want, "\n"), got); diff != "" {
			t.Error(diff)
		}
	}
	for _, test := range []struct {
		spec  Spec
		kind  Kind
		words string
	}{
		{copyOf(sn.ID, 99*MiB, 0), KindOutOfRange, "less than the 100 MiB"},
		{copyOf(sn.ID, 0, 99*MiB), KindOutOfRange, "pass the limit"},
		{copyOf(sn.ID, 4*GiB, 0), KindOutOfRange, "until there is room"},
		{copyOf(half.ID, 0, 0), KindBusy, "not ready yet"},
		{copyOf(other.ID, 0, 0), KindInvalid, "thin pool vg/second"},
		{copyOf(thick.ID, 0, 0), KindInvalid, "not thin"},
		{copyOf(ID{VG: v.ID.VG, LV: "s-gone"}, 0, 0), KindNotFound, "has no source"},
		{copyOf(ID{VG: "elsewhere", LV: "s"}, 0, 0), KindInsufficientCapacity, "not on this node"},
		{copyOf(ID{VG: v.ID.VG, LV: DefaultPool}, 0, 0), KindNotFound, "not a volume or snapshot"},
		{Spec{Name: "copy", Class: Class{Group: "vg"}, Source: sn.ID}, KindInvalid, "use a class with layout: thin"},
	} {
		if _, err := plan(s, testCluster, []Spec{test.spec}); err == nil || KindOf(err) != test.kind || !strings.Contains(err.Error(), test.words) {
			t.Errorf("%+v: kind %d, %v", test.spec, KindOf(err), err)
		}
	}
	elsewhere := State{Groups: append(s.Groups, testGroup("vg2", []Run{{0, 100}}))}
	spec := copyOf(sn.ID, 0, 0)
	spec.Class.Group = "vg2"
	if _, err := plan(elsewhere, testCluster, []Spec{spec}); KindOf(err) != KindInvalid {
		t.Errorf("a copy in another group: %v", err)
	}
}

// TestPoolOfAdmin: a pool without our mark is used as it is, and not grown.
func TestPoolOfAdmin(t *testing.T) {
	s := fiveDisks()
	g := &s.Groups[0]
	g.LVs = append(g.LVs, LV{Name: "pool", Type: "thin-pool", Extents: 50, Thin: &ThinPool{Metadata: "pool_tmeta", ChunkSize: MiB, Zero: true}},
		LV{Name: "pool_tmeta", Hidden: true, Extents: 1, Type: "linear"},
		LV{Name: "theirs", Type: "thin", Pool: "pool", Extents: 20})
	class := Class{Group: "vg", Layout: LayoutThin, Pool: "pool", Overprovision: 150}
	c, err := capacity(s, class)
	if want := Bytes(75-20) * 4 * MiB; err != nil || c.Largest != want {
		t.Fatalf("%+v, %v; want %s", c, err, want)
	}
	p := planned(t, s, Spec{Name: "a", Class: class, Required: c.Largest})[0]
	if steps, err := createSteps(p.carve); err != nil || len(steps) != 1 {
		t.Errorf("%v, %v", steps, err)
	}
	if _, err := plan(s, testCluster, []Spec{{Name: "a", Class: class, Required: c.Largest + 1}}); err == nil || !strings.Contains(err.Error(), "lvextend vg/pool") {
		t.Error(err)
	}
}

// TestPoolOfLargeGroups: the metadata stays below LVM's limit, with larger chunks; and a pool stops growing where its
// metadata could not describe more.
func TestPoolOfLargeGroups(t *testing.T) {
	for tib, want := range map[Extents]Bytes{1: 64 * KiB, 3: 64 * KiB, 8: 256 * KiB, 100: 2 * MiB} {
		g := testGroup("vg", []Run{{0, tib << 18}})
		g.PVs[0].Extents = tib << 18
		p, err := poolOf(g, Class{Layout: LayoutThin, Pool: DefaultPool})
		if err != nil || p.chunk != want || g.bytes(p.metadata) > poolMetadataMax {
			t.Errorf("%d TiB: chunks of %s, metadata of %s, %v", tib, p.chunk, g.bytes(p.metadata), err)
		}
	}
	grown := testGroup("vg", []Run{{0, 1 << 20}})
	grown.PVs[0].Extents = 2 << 20
	grown.LVs = []LV{{Name: DefaultPool, Tags: poolTags("c"), Type: "thin-pool", Extents: 100, Thin: &ThinPool{Metadata: "m", ChunkSize: 64 * KiB, Zero: true}},
		{Name: "m", Hidden: true, Extents: 1}}
	// 4 MiB of metadata describe 65536 chunks of 64 KiB: 4 GiB.
	if c, err := capacity(State{Groups: []Group{grown}}, Class{Group: "vg", Layout: LayoutThin}); err != nil || c.Largest != 4*GiB {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestPoolHalfMade: what lvcreate leaves when it is cut off between its commits stands in nobody's way.
func TestPoolHalfMade(t *testing.T) {
	s := fiveDisks()
	g := &s.Groups[0]
	half := LV{UUID: "half", Name: DefaultPool, Tags: poolTags(testCluster), Type: "linear", Extents: 2}
	g.LVs = append(g.LVs, half)
	spec := specIn("a", thinClass, 8*MiB)
	p := planned(t, s, spec)[0]
	steps, err := createSteps(p.carve)
	lines := argvOf(t, steps, err)
	want := "lvremove -S vg_missing_pv_count=0 && lv_uuid=half && lv_tags={nodelvm.kind=pool} -- vg/nodelvm-thin"
	if len(lines) < 3 || lines[0] != want || !strings.HasPrefix(lines[1], "lvcreate --type thin-pool") {
		t.Errorf("%q", lines)
	}
	takeCarving(s, p.carve)
	if second := planned(t, s, specIn("b", thinClass, 8*MiB))[0]; second.carve.pool != nil {
		t.Errorf("the pool is made twice: %+v", second.carve.pool)
	}
	for what, change := range map[string]func(*LV){
		"somebody else's": func(lv *LV) { lv.Tags = nil },
		"in use":          func(lv *LV) { lv.UsedBy = []string{"x"} },
	} {
		s := fiveDisks()
		other := half
		change(&other)
		s.Groups[0].LVs = append(s.Groups[0].LVs, other)
		if _, err := plan(s, testCluster, []Spec{spec}); KindOf(err) != KindInsufficientCapacity || !strings.Contains(err.Error(), "is not a thin pool") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestSparesOnlyWithoutSpare: where LVM has its spare already it makes no other, and a volume of a name of LVM's choice is
// left alone whatever it bears: pool metadata that an admin has taken out for repair came from that same lvcreate.
func TestSparesOnlyWithoutSpare(t *testing.T) {
	for _, spared := range []bool{false, true} {
		s := fiveDisks()
		g := &s.Groups[0]
		g.LVs = append(g.LVs, LV{UUID: "left", Name: "lvol7", Type: "linear", Extents: 1})
		if spared {
			g.LVs = append(g.LVs, LV{UUID: "spare", Name: "lvol0" + spareSuffix, Hidden: true, Type: "linear", Extents: 1})
		}
		steps, err := createSteps(planned(t, s, specIn("a", thinClass, 8*MiB))[0].carve)
		if removed := strings.Contains(strings.Join(argvOf(t, steps, err), "\n"), "lv_uuid=left"); removed == spared {
			t.Errorf("with a spare: %v; removed: %v", spared, removed)
		}
	}
}

// snapshotCommands are the commands of a planned snapshot.
func snapshotCommands(t testing.TB, p snapshotPlacement) []step {
	t.Helper()
	steps, err := snapshotSteps(p)
	must(t, err)
	return steps
}

// poolCommands are the commands of a pool's growth.
func poolCommands(t testing.TB, p *poolGrowth) []step {
	t.Helper()
	steps, err := poolSteps(p)
	must(t, err)
	return steps
}
