package lvmcmd

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// rangesIn parses the ranges of a command line.
func rangesIn(t *rapid.T, argv []string) (ranges []alloc.ExtentRange) {
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
			ranges = append(ranges, alloc.ExtentRange{Device: device, First: lvm.Extents(a), Last: lvm.Extents(b)})
		}
	}
	return ranges
}

func snapshotted(t testing.TB, s lvm.State, name string, v lvm.Volume, state lvm.VolumeState) lvm.Snapshot {
	t.Helper()
	p, err := alloc.PlanSnapshot(s, fixture.TestCluster, lvm.SnapshotSpec{Name: name, Source: v.ID})
	fixture.Must(t, err)
	if p.Snapshot.Name == "" {
		t.Fatalf("%+v", p)
	}
	p.Snapshot.State = state
	g := &s.Groups[0]
	g.LVs = append(g.LVs, lvm.LV{Name: p.Snapshot.ID.LV, UUID: "uuid-" + name, Tags: lvm.SnapshotTags(p.Snapshot), Type: "thin",
		Pool: v.Class.Pool, Origin: v.ID.LV, Extents: lvm.Extents(v.Size / g.ExtentSize)})
	last := fixture.Decoded(*g, g.LVs[len(g.LVs)-1])
	g.LVs[len(g.LVs)-1] = last
	sn, ours := last.AsSnapshot()
	want := p.Snapshot
	want.UUID = "uuid-" + name
	if diff := cmp.Diff(want, sn); diff != "" || !ours {
		t.Fatalf("read back: %s", diff)
	}
	if _, is := last.AsVolume(); is || last.CheckTags() != nil {
		t.Fatalf("a snapshot is taken for a volume: %v", last.CheckTags())
	}
	return sn
}

// TestPlanSnapshot: a snapshot that exists, one that does not, and one that cannot.
func TestPlanSnapshot(t *testing.T) {
	s := fixture.FiveDisks()
	v := fixture.NewVolume(t, s, fixture.SpecIn("a", fixture.ThinClass, 100*lvm.MiB))
	thick := fixture.NewVolume(t, s, fixture.SpecIn("thick", lvm.Class{}, 8*lvm.MiB))
	fixture.NewVolume(t, s, fixture.SpecIn("b", fixture.ThinClass, 100*lvm.MiB))
	p, err := alloc.PlanSnapshot(s, fixture.TestCluster, lvm.SnapshotSpec{Name: "new", Source: v.ID})
	want := []string{"lvcreate -an -ky -pr -s -n " + lvm.SnapshotName("new") + " --addtag nodelvm.v=1 --addtag nodelvm.kind=snapshot --addtag nodelvm.state=creating" +
		" --addtag nodelvm.cluster=cluster-1 --addtag nodelvm.name=new --addtag nodelvm.source=" + v.ID.LV + " -- vg/" + v.ID.LV}
	if diff := cmp.Diff(want, argvOf(t, snapshotCommands(t, p), err)); diff != "" {
		t.Error(diff)
	}
	ready := snapshotted(t, s, "ready", v, lvm.StateReady)
	snapshotted(t, s, "half", v, lvm.StateCreating)
	snapshotted(t, s, "leaving", v, lvm.StateDeleting)
	for name, want := range map[string]string{"ready": "ready", "half": "leftover", "other": "steps"} {
		p, err := alloc.PlanSnapshot(s, fixture.TestCluster, lvm.SnapshotSpec{Name: name, Source: v.ID})
		got := map[bool]string{p.Ready != nil: "ready", p.Leftover != nil: "leftover", p.Snapshot.Name != "": "steps"}[true]
		if err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", name, got, err, want)
		}
	}
	if p, err := alloc.PlanSnapshot(s, fixture.TestCluster, lvm.SnapshotSpec{Name: "ready", Source: v.ID}); err != nil || *p.Ready != ready {
		t.Errorf("%+v, %v; want %+v", p.Ready, err, ready)
	}
	gone := lvm.ID{VG: v.ID.VG, LV: "pvc-gone"}
	for _, test := range []struct {
		name, cluster string
		source        lvm.ID
		kind          lvm.Kind
		words         string
	}{
		{"ready", fixture.TestCluster, thick.ID, lvm.KindExists, "of the volume"},
		{"leaving", fixture.TestCluster, v.ID, lvm.KindBusy, "being removed"},
		{"ready", "cluster-2", v.ID, lvm.KindExists, "is something else"},
		{"new", "cluster-2", v.ID, lvm.KindNotManaged, "cluster-1"},
		{"new", fixture.TestCluster, thick.ID, lvm.KindInvalid, "layout: thin"},
		{"new", fixture.TestCluster, gone, lvm.KindNotFound, "pvc-gone"},
		{"new", fixture.TestCluster, lvm.ID{VG: "elsewhere", LV: "a"}, lvm.KindNotLocal, "not on this node"},
		{"new", fixture.TestCluster, ready.ID, lvm.KindNotManaged, "not a managed volume"},
		{"", fixture.TestCluster, v.ID, lvm.KindInvalid, "name"},
	} {
		if _, err := alloc.PlanSnapshot(s, test.cluster, lvm.SnapshotSpec{Name: test.name, Source: test.source}); err == nil || lvm.KindOf(err) != test.kind || !strings.Contains(err.Error(), test.words) {
			t.Errorf("%+v: kind %d, %v", test, lvm.KindOf(err), err)
		}
	}
}

// TestSnapshotsCountAsProvisioned: a snapshot can come to hold as much as its volume, so it counts as much; an overprovisioned class
// accepts more of them.
func TestSnapshotsCountAsProvisioned(t *testing.T) {
	for percent, want := range map[int]int{100: 3, 300: 11} {
		s := fixture.FiveDisks()
		class := fixture.ThinClass
		class.Overprovision = percent
		// 496 extents of data in all: a volume of 120 leaves 3 more, or 11 at 300 %.
		v := fixture.NewVolume(t, s, fixture.SpecIn("a", class, 480*lvm.MiB))
		n := 0
		for ; ; n++ {
			p, err := alloc.PlanSnapshot(s, fixture.TestCluster, lvm.SnapshotSpec{Name: fmt.Sprint(n), Source: v.ID})
			if err != nil {
				if says := "counts as much as its volume there, 480 MiB"; lvm.KindOf(err) != lvm.KindInsufficientCapacity || !strings.Contains(err.Error(), says) {
					t.Fatalf("%v; want an error that says %q", err, says)
				}
				break
			}
			g := &s.Groups[0]
			for _, step := range poolCommands(t, p.Pool) { // the pool is extended
				for i := range g.LVs {
					if g.LVs[i].Thin != nil {
						g.LVs[i].Extents = 496
					}
				}
				for i := range g.PVs {
					g.PVs[i].Free = nil
				}
				if step.Argv[0] != "lvextend" {
					t.Fatalf("%q", step.Argv)
				}
			}
			snapshotted(t, s, fmt.Sprint(n), v, lvm.StateReady)
		}
		if n != want {
			t.Errorf("%d snapshots at %d %%, want %d", n, percent, want)
		}
	}
}

// TestPlanCopy: a volume is restored or cloned from a snapshot or volume in the same pool, and is no smaller.
func TestPlanCopy(t *testing.T) {
	s := fixture.FiveDisks()
	thick := fixture.NewVolume(t, s, fixture.SpecIn("thick", lvm.Class{}, 8*lvm.MiB))
	v := fixture.NewVolume(t, s, fixture.SpecIn("a", fixture.ThinClass, 100*lvm.MiB))
	other := fixture.NewVolume(t, s, fixture.SpecIn("b", lvm.Class{Layout: lvm.LayoutThin, Pool: "second"}, 4*lvm.MiB))
	sn := snapshotted(t, s, "snap", v, lvm.StateReady)
	half := snapshotted(t, s, "half", v, lvm.StateCreating)
	copyOf := func(source lvm.ID, required, limit lvm.Bytes) lvm.Spec {
		return lvm.Spec{Name: "copy", Class: lvm.Class{Group: "@fast", Layout: lvm.LayoutThin}, Required: required, Limit: limit, Source: source}
	}
	name := lvm.LVName("copy")
	create := "lvcreate -ay -kn -prw -s -n " + name + " --addtag nodelvm.v=1 --addtag nodelvm.state=creating --addtag nodelvm.cluster=cluster-1" +
		" --addtag nodelvm.name=copy --addtag nodelvm.lv=" + name + " --addtag nodelvm.layout=thin --addtag nodelvm.overprovision=100 --addtag nodelvm.source=SOURCE -- vg/SOURCE"
	for _, test := range []struct {
		spec lvm.Spec
		want []string
	}{
		{copyOf(sn.ID, 0, 0), []string{create}},
		{copyOf(v.ID, 100*lvm.MiB, 100*lvm.MiB), []string{create}},
		{copyOf(sn.ID, 101*lvm.MiB, 0), []string{create, "lvextend --alloc normal -l 26 -- vg/" + name}},
	} {
		p := fixture.Planned(t, s, test.spec)[0]
		steps, err := CreateSteps(p.Create)
		got := strings.ReplaceAll(strings.Join(argvOf(t, steps, err), "\n"), test.spec.Source.LV, "SOURCE")
		if diff := cmp.Diff(strings.Join(test.want, "\n"), got); diff != "" {
			t.Error(diff)
		}
	}
	for _, test := range []struct {
		spec  lvm.Spec
		kind  lvm.Kind
		words string
	}{
		{copyOf(sn.ID, 99*lvm.MiB, 0), lvm.KindOutOfRange, "less than the 100 MiB"},
		{copyOf(sn.ID, 0, 99*lvm.MiB), lvm.KindOutOfRange, "exceeds the limit"},
		{copyOf(sn.ID, 4*lvm.GiB, 0), lvm.KindOutOfRange, "until the thin pool has capacity"},
		{copyOf(half.ID, 0, 0), lvm.KindBusy, "not ready yet"},
		{copyOf(other.ID, 0, 0), lvm.KindInvalid, "thin pool vg/second"},
		{copyOf(thick.ID, 0, 0), lvm.KindInvalid, "has the layout linear"},
		{copyOf(lvm.ID{VG: v.ID.VG, LV: "s-gone"}, 0, 0), lvm.KindNotFound, "has no source"},
		{copyOf(lvm.ID{VG: "elsewhere", LV: "s"}, 0, 0), lvm.KindInsufficientCapacity, "not on this node"},
		{copyOf(lvm.ID{VG: v.ID.VG, LV: lvm.DefaultPool}, 0, 0), lvm.KindNotFound, "not a volume or snapshot"},
		{lvm.Spec{Name: "copy", Class: lvm.Class{Group: "vg"}, Source: sn.ID}, lvm.KindInvalid, "use a class with layout: thin"},
	} {
		if _, err := alloc.Plan(s, fixture.TestCluster, []lvm.Spec{test.spec}); err == nil || lvm.KindOf(err) != test.kind || !strings.Contains(err.Error(), test.words) {
			t.Errorf("%+v: kind %d, %v", test.spec, lvm.KindOf(err), err)
		}
	}
	elsewhere := lvm.State{Groups: append(s.Groups, fixture.TestGroup("vg2", []lvm.Run{{Start: 0, Count: 100}}))}
	spec := copyOf(sn.ID, 0, 0)
	spec.Class.Group = "vg2"
	if _, err := alloc.Plan(elsewhere, fixture.TestCluster, []lvm.Spec{spec}); lvm.KindOf(err) != lvm.KindInvalid {
		t.Errorf("a copy in another group: %v", err)
	}
}

// TestPoolOfAdmin: the driver uses a pool without its tags as it is, and does not extend it.
func TestPoolOfAdmin(t *testing.T) {
	s := fixture.FiveDisks()
	g := &s.Groups[0]
	g.LVs = append(g.LVs, lvm.LV{Name: "pool", Type: "thin-pool", Extents: 50, Thin: &lvm.ThinPool{Metadata: "pool_tmeta", ChunkSize: lvm.MiB, Zero: true}},
		lvm.LV{Name: "pool_tmeta", Hidden: true, Extents: 1, Type: "linear"},
		lvm.LV{Name: "theirs", Type: "thin", Pool: "pool", Extents: 20})
	class := lvm.Class{Group: "vg", Layout: lvm.LayoutThin, Pool: "pool", Overprovision: 150}
	c, err := alloc.Capacity(s, class)
	if want := lvm.Bytes(75-20) * 4 * lvm.MiB; err != nil || c.Largest != want {
		t.Fatalf("%+v, %v; want %s", c, err, want)
	}
	p := fixture.Planned(t, s, lvm.Spec{Name: "a", Class: class, Required: c.Largest})[0]
	if steps, err := CreateSteps(p.Create); err != nil || len(steps) != 1 {
		t.Errorf("%v, %v", steps, err)
	}
	if _, err := alloc.Plan(s, fixture.TestCluster, []lvm.Spec{{Name: "a", Class: class, Required: c.Largest + 1}}); err == nil || !strings.Contains(err.Error(), "lvextend -L+SIZE vg/pool") {
		t.Error(err)
	}
}

// TestPoolOfLargeGroups: the metadata stays below LVM's limit, with larger chunks; a pool is not extended beyond what its
// metadata can map.
func TestPoolOfLargeGroups(t *testing.T) {
	for tib, want := range map[lvm.Extents]lvm.Bytes{1: 64 * lvm.KiB, 3: 64 * lvm.KiB, 8: 256 * lvm.KiB, 100: 2 * lvm.MiB} {
		g := fixture.TestGroup("vg", []lvm.Run{{Start: 0, Count: tib << 18}})
		g.PVs[0].Extents = tib << 18
		p, err := alloc.PoolOf(g, lvm.Class{Layout: lvm.LayoutThin, Pool: lvm.DefaultPool})
		if err != nil || p.Chunk != want || g.Bytes(p.Metadata) > alloc.PoolMetadataMax {
			t.Errorf("%d TiB: chunks of %s, metadata of %s, %v", tib, p.Chunk, g.Bytes(p.Metadata), err)
		}
	}
	grown := fixture.TestGroup("vg", []lvm.Run{{Start: 0, Count: 1 << 20}})
	grown.PVs[0].Extents = 2 << 20
	grown.LVs = []lvm.LV{{Name: lvm.DefaultPool, Managed: &lvm.Managed{Pool: true}, Type: "thin-pool", Extents: 100, Thin: &lvm.ThinPool{Metadata: "m", ChunkSize: 64 * lvm.KiB, Zero: true}},
		{Name: "m", Hidden: true, Extents: 1}}
	// 4 MiB of metadata map 65536 chunks of 64 KiB: 4 GiB.
	if c, err := alloc.Capacity(lvm.State{Groups: []lvm.Group{grown}}, lvm.Class{Group: "vg", Layout: lvm.LayoutThin}); err != nil || c.Largest != 4*lvm.GiB {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestRemainsOfKilledPoolCreation: the remains of a killed lvcreate do not prevent the next one.
func TestRemainsOfKilledPoolCreation(t *testing.T) {
	s := fixture.FiveDisks()
	g := &s.Groups[0]
	half := lvm.LV{UUID: "half", Name: lvm.DefaultPool, Managed: &lvm.Managed{Pool: true}, Type: "linear", Extents: 2}
	g.LVs = append(g.LVs, half)
	spec := fixture.SpecIn("a", fixture.ThinClass, 8*lvm.MiB)
	p := fixture.Planned(t, s, spec)[0]
	steps, err := CreateSteps(p.Create)
	lines := argvOf(t, steps, err)
	want := "lvremove -S vg_missing_pv_count=0 && lv_uuid=half && lv_tags={nodelvm.kind=pool} -- vg/nodelvm-thin"
	if len(lines) < 3 || lines[0] != want || !strings.HasPrefix(lines[1], "lvcreate --type thin-pool") {
		t.Errorf("%q", lines)
	}
	alloc.ApplyAllocation(s, p.Create)
	if second := fixture.Planned(t, s, fixture.SpecIn("b", fixture.ThinClass, 8*lvm.MiB))[0]; second.Create.Pool != nil {
		t.Errorf("the pool is made twice: %+v", second.Create.Pool)
	}
	for what, change := range map[string]func(*lvm.LV){
		"somebody else's": func(lv *lvm.LV) { lv.Managed = nil },
		"in use":          func(lv *lvm.LV) { lv.UsedBy = []string{"x"} },
	} {
		s := fixture.FiveDisks()
		other := half
		change(&other)
		s.Groups[0].LVs = append(s.Groups[0].LVs, other)
		if _, err := alloc.Plan(s, fixture.TestCluster, []lvm.Spec{spec}); lvm.KindOf(err) != lvm.KindInsufficientCapacity || !strings.Contains(err.Error(), "is not a thin pool") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestSparesOnlyWithoutSpare: where LVM has its spare it creates no other, so the driver does not change a volume with a name
// of LVM's choice, whatever its host name. Pool metadata that an admin extracted for repair comes from that same lvcreate.
func TestSparesOnlyWithoutSpare(t *testing.T) {
	for _, spared := range []bool{false, true} {
		s := fixture.FiveDisks()
		g := &s.Groups[0]
		g.LVs = append(g.LVs, lvm.LV{UUID: "left", Name: "lvol7", Type: "linear", Extents: 1})
		if spared {
			g.LVs = append(g.LVs, lvm.LV{UUID: "spare", Name: "lvol0" + alloc.SpareSuffix, Hidden: true, Type: "linear", Extents: 1})
		}
		steps, err := CreateSteps(fixture.Planned(t, s, fixture.SpecIn("a", fixture.ThinClass, 8*lvm.MiB))[0].Create)
		if removed := strings.Contains(strings.Join(argvOf(t, steps, err), "\n"), "lv_uuid=left"); removed == spared {
			t.Errorf("with a spare: %v; removed: %v", spared, removed)
		}
	}
}

// snapshotCommands are the commands of a planned snapshot.
func snapshotCommands(t testing.TB, p alloc.SnapshotPlacement) []Step {
	t.Helper()
	steps, err := SnapshotSteps(p)
	fixture.Must(t, err)
	return steps
}

// poolCommands are the commands of a pool's growth.
func poolCommands(t testing.TB, p *alloc.PoolGrowth) []Step {
	t.Helper()
	steps, err := PoolSteps(p)
	fixture.Must(t, err)
	return steps
}

// TestPoolGrowsOnItsBlockSize: the data of a pool that is extended as it fills stays on disks with its own logical block size, also if the pool's
// metadata grows too. On others its volumes would get larger blocks, and could not be mounted.
func TestPoolGrowsOnItsBlockSize(t *testing.T) {
	for _, metadata := range []lvm.Extents{0, 1} {
		g := fixture.TestGroup("vg", []lvm.Run{{Start: 0, Count: 600}}, []lvm.Run{})
		g.PVs[0].BlockSize, g.PVs[1].BlockSize = 512, 4096
		s := lvm.State{Groups: []lvm.Group{g}}
		fixture.NewVolume(t, s, fixture.SpecIn("a", fixture.ThinClass, 10*g.ExtentSize))
		g = s.Groups[0]
		g.PVs[1].Free = []lvm.Run{{Start: 0, Count: 10}}
		p, err := alloc.PoolOf(g, lvm.Class{Pool: lvm.DefaultPool})
		fixture.Must(t, err)
		steps, err := PoolExtensionSteps(p, alloc.PoolNeed{Data: p.Data + 10, Metadata: metadata})
		fixture.Must(t, err)
		on := ""
		for _, s := range steps {
			if last := s.Argv[len(s.Argv)-1]; strings.HasPrefix(last, g.PVs[0].Device+":") {
				on += last
			} else if !slices.Contains(s.Argv, "--poolmetadatasize") {
				t.Errorf("with %d extents of metadata: %q", metadata, s.Argv)
			}
		}
		if on == "" {
			t.Errorf("with %d extents of metadata: %+v", metadata, steps)
		}
	}
}
