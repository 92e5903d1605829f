package alloc_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// poolGroup is a group with an admin's pool of 4 GiB and these thin LVs.
func poolGroup(lvs ...lvm.LV) lvm.Group {
	g := fixture.TestGroup("vg", []lvm.Run{})
	g.LVs = []lvm.LV{
		{Name: lvm.DefaultPool, Type: "thin-pool", Extents: 1024, Thin: &lvm.ThinPool{Data: "d", Metadata: "m", ChunkSize: 64 * lvm.KiB, Zero: true}},
		{Name: "d", Hidden: true, Extents: 1024}, {Name: "m", Hidden: true, Extents: 10},
	}
	for _, lv := range lvs {
		lv.Type, lv.Pool = "thin", lvm.DefaultPool
		g.LVs = append(g.LVs, lv)
	}
	g.Decode()
	return g
}

func thinLV(name, origin string, extents lvm.Extents, access lvm.Access, source string) lvm.LV {
	v := lvm.Volume{ID: lvm.ID{LV: name}, Name: name, Cluster: fixture.TestCluster, State: lvm.StateReady, Class: lvm.Class{Layout: lvm.LayoutThin}, Access: access}
	if source != "" {
		v.ID.VG, v.Source = "uuid-vg", lvm.ID{VG: "uuid-vg", LV: source}
	}
	return lvm.LV{Name: name, UUID: "uuid-" + name, Origin: origin, Extents: extents, Tags: lvm.VolumeTags(v)}
}

// TestProvisioned: a read-only copy of a snapshot counts what its journal may write, and the snapshot's blocks count once for as long as one of
// the copies needs them.
func TestProvisioned(t *testing.T) {
	id := lvm.ID{VG: "uuid-vg", LV: lvm.SnapshotName("s")}
	sn := lvm.LV{Name: id.LV, UUID: "uuid-s", Origin: "data", Extents: 512,
		Tags: lvm.SnapshotTags(lvm.Snapshot{ID: id, Name: "s", Cluster: fixture.TestCluster, Source: lvm.ID{VG: "uuid-vg", LV: "data"}, State: lvm.StateReady})}
	data := thinLV("data", "", 512, lvm.AccessWritable, "")
	const size, replay = 2 * lvm.GiB, 64 * lvm.MiB
	for what, test := range map[string]struct {
		lvs  []lvm.LV
		want lvm.Bytes
	}{
		"a volume and its snapshot":    {[]lvm.LV{data, sn}, 2 * size},
		"and a restored volume":        {[]lvm.LV{data, sn, thinLV("a", id.LV, 512, lvm.AccessWritable, id.LV)}, 3 * size},
		"and a read-only copy":         {[]lvm.LV{data, sn, thinLV("a", id.LV, 512, lvm.AccessReplay, id.LV)}, 2*size + replay},
		"and two":                      {[]lvm.LV{data, sn, thinLV("a", id.LV, 512, lvm.AccessReplay, id.LV), thinLV("b", id.LV, 512, lvm.AccessReadOnly, id.LV)}, 2*size + 2*replay},
		"without the snapshot":         {[]lvm.LV{data, thinLV("a", "", 512, lvm.AccessReplay, id.LV), thinLV("b", "", 512, lvm.AccessReadOnly, id.LV)}, 2*size + 2*replay},
		"two of different ones":        {[]lvm.LV{data, thinLV("a", "", 512, lvm.AccessReadOnly, lvm.SnapshotName("x")), thinLV("b", "", 512, lvm.AccessReadOnly, id.LV)}, 3*size + 2*replay},
		"with another volume as such":  {[]lvm.LV{data, thinLV("a", "data", 512, lvm.AccessReadOnly, id.LV)}, 2*size + replay},
		"a read-only copy of a volume": {[]lvm.LV{data, thinLV("a", "data", 512, lvm.AccessReplay, "data")}, 2 * size},
		"a replay that began":          {[]lvm.LV{data, sn, thinLV("a", id.LV, 512, lvm.AccessReplaying, id.LV)}, 2*size + replay},
		"one after an interruption":    {[]lvm.LV{data, sn, thinLV("a", id.LV, 512, lvm.AccessReplayingFull, id.LV)}, 3 * size},
		"a replay that wrote much":     {[]lvm.LV{data, sn, thinLV("a", id.LV, 512, lvm.AccessReadOnlyFull, id.LV)}, 3 * size},
		"a small copy":                 {[]lvm.LV{sn, thinLV("a", id.LV, 1, lvm.AccessReplay, id.LV)}, size + 4*lvm.MiB},
		"an unmanaged one":             {[]lvm.LV{{Name: "admins", Extents: 512}}, size},
	} {
		g := poolGroup(test.lvs...)
		if got := alloc.Provisioned(g, g.LVs[0]); got != test.want {
			t.Errorf("%s: %s are provisioned, want %s", what, got, test.want)
		}
	}
}

// TestReadOnlyCopyInAFullPool: a copy of a snapshot is read-only where a writable one has no space; it has its source's size, and keeps it.
func TestReadOnlyCopyInAFullPool(t *testing.T) {
	id := lvm.ID{VG: "uuid-vg", LV: lvm.SnapshotName("s")}
	sn := lvm.LV{Name: id.LV, UUID: "uuid-s", Origin: "data", Extents: 480,
		Tags: lvm.SnapshotTags(lvm.Snapshot{ID: id, Name: "s", Cluster: fixture.TestCluster, Source: lvm.ID{VG: "uuid-vg", LV: "data"}, State: lvm.StateReady})}
	g := poolGroup(thinLV("data", "", 512, lvm.AccessWritable, ""), sn)
	spec := lvm.Spec{Name: "copy", Class: lvm.Class{Group: "vg", Layout: lvm.LayoutThin, Pool: lvm.DefaultPool}, Source: id, Access: lvm.AccessReplay}
	plan := func(change func(*lvm.Spec)) (alloc.Placement, error) {
		spec := spec
		change(&spec)
		p, err := alloc.Plan(lvm.State{Groups: []lvm.Group{g}}, fixture.TestCluster, []lvm.Spec{spec})
		if err != nil {
			return alloc.Placement{}, err
		}
		return p[0], nil
	}
	p, err := plan(func(*lvm.Spec) {})
	if err != nil || p.Create == nil || p.Create.Extents != 480 || p.Create.Volume.Access != lvm.AccessReplay {
		t.Fatalf("planned %+v, %v", p.Create, err)
	}
	for what, test := range map[string]struct {
		change func(*lvm.Spec)
		kind   lvm.Kind
		says   string
	}{
		"writable":   {func(s *lvm.Spec) { s.Access = lvm.AccessWritable }, lvm.KindOutOfRange, "128 MiB"},
		"larger":     {func(s *lvm.Spec) { s.Required = 480*4*lvm.MiB + 1 }, lvm.KindOutOfRange, "has the size of its source"},
		"a clone":    {func(s *lvm.Spec) { s.Source.LV = "data" }, lvm.KindOutOfRange, "128 MiB"},
		"of nothing": {func(s *lvm.Spec) { s.Source = lvm.ID{} }, lvm.KindInvalid, "would be empty"},
	} {
		if _, err := plan(test.change); lvm.KindOf(err) != test.kind || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	made := p.Create.Volume
	g = poolGroup(thinLV("data", "", 512, lvm.AccessWritable, ""), sn, lvm.LV{Name: made.ID.LV, UUID: "u", Origin: id.LV, Extents: 480, Tags: lvm.VolumeTags(func() lvm.Volume { made.State = lvm.StateReady; return made }())})
	if p, err = plan(func(s *lvm.Spec) { s.Required = 480 * 4 * lvm.MiB }); err != nil || p.Ready == nil {
		t.Errorf("repeated: %+v, %v", p, err)
	}
	if _, err = plan(func(s *lvm.Spec) { s.Access = lvm.AccessWritable }); lvm.KindOf(err) != lvm.KindExists {
		t.Errorf("a writable one with its name: %v", err)
	}
	s := lvm.State{Groups: []lvm.Group{g}}
	_, _, v, err := s.FindVolume(made.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := alloc.PlanExtend(s, v, alloc.ExtendRequest{Id: v.ID, Required: v.Size + 1}); lvm.KindOf(err) != lvm.KindOutOfRange || !strings.Contains(err.Error(), "read-only copy") {
		t.Errorf("expansion: %v", err)
	}
	if x, err := alloc.PlanExtend(s, v, alloc.ExtendRequest{Id: v.ID, Required: v.Size}); err != nil || x.Extents != 0 {
		t.Errorf("expansion to its size: %+v, %v", x, err)
	}
}

// TestCopyBesideAReplay: while the journal of a read-only copy is replayed, the pool takes another copy, but not after an interruption of the replay.
func TestCopyBesideAReplay(t *testing.T) {
	id := lvm.ID{VG: "uuid-vg", LV: lvm.SnapshotName("s")}
	sn := lvm.LV{Name: id.LV, UUID: "uuid-s", Origin: "data", Extents: 480,
		Tags: lvm.SnapshotTags(lvm.Snapshot{ID: id, Name: "s", Cluster: fixture.TestCluster, Source: lvm.ID{VG: "uuid-vg", LV: "data"}, State: lvm.StateReady})}
	for access, fits := range map[lvm.Access]bool{lvm.AccessReplaying: true, lvm.AccessReplayingFull: false} {
		g := poolGroup(thinLV("data", "", 512, lvm.AccessWritable, ""), sn, thinLV("replaying", id.LV, 480, access, id.LV)) // 128 MiB are left for copies
		spec := lvm.Spec{Name: "copy", Class: lvm.Class{Group: "vg", Layout: lvm.LayoutThin, Pool: lvm.DefaultPool}, Source: id, Access: lvm.AccessReplay}
		if _, err := alloc.Plan(lvm.State{Groups: []lvm.Group{g}}, fixture.TestCluster, []lvm.Spec{spec}); (err == nil) != fits || !fits && lvm.KindOf(err) != lvm.KindOutOfRange {
			t.Errorf("%s: %v", access, err)
		}
	}
}

// TestAccessAfterReplay: each write may allocate a chunk at its beginning and one at its end.
func TestAccessAfterReplay(t *testing.T) {
	g := poolGroup(thinLV("copy", "", 512, lvm.AccessReplay, lvm.SnapshotName("s"))) // 64 MiB are 1024 chunks
	slices.SortFunc(g.LVs, func(a, b lvm.LV) int { return strings.Compare(a.Name, b.Name) })
	lv := *g.FindLV("copy")
	for _, test := range []struct {
		writes int64
		size   lvm.Bytes
		want   lvm.Access
	}{
		{0, 0, lvm.AccessReadOnly}, {490, 2 * lvm.MiB, lvm.AccessReadOnly}, {512, 0, lvm.AccessReadOnly}, {512, 4096, lvm.AccessReadOnlyFull},
		{1, 65 * lvm.MiB, lvm.AccessReadOnlyFull}, {1<<63 - 1, 1, lvm.AccessReadOnlyFull},
	} {
		if got := alloc.AccessAfterReplay(g, lv, test.writes, test.size); got != test.want {
			t.Errorf("%d writes of %s: %q, want %q", test.writes, test.size, got, test.want)
		}
	}
}

// TestPlansInOnePool: a planned volume counts for the next one, whether or not the pool grows for it.
func TestPlansInOnePool(t *testing.T) {
	id := lvm.ID{VG: "uuid-vg", LV: lvm.SnapshotName("s")}
	sn := lvm.LV{Name: id.LV, UUID: "uuid-s", Extents: 256,
		Tags: lvm.SnapshotTags(lvm.Snapshot{ID: id, Name: "s", Cluster: fixture.TestCluster, Source: lvm.ID{VG: "uuid-vg", LV: "data"}, State: lvm.StateReady})}
	s := lvm.State{Groups: []lvm.Group{poolGroup(sn)}} // 1 GiB of 4 is provisioned
	spec := func(name string, size lvm.Bytes, access lvm.Access) lvm.Spec {
		spec := lvm.Spec{Name: name, Class: lvm.Class{Group: "vg", Layout: lvm.LayoutThin, Pool: lvm.DefaultPool}, Required: size, Access: access}
		if access.ReadOnly() {
			spec.Source = id
		}
		return spec
	}
	const full = 3*lvm.GiB - 2*64*lvm.MiB
	for what, test := range map[string]struct {
		specs []lvm.Spec
		fits  int
	}{
		"two that fit":       {[]lvm.Spec{spec("a", lvm.GiB, ""), spec("b", 2*lvm.GiB, "")}, 2},
		"two that do not":    {[]lvm.Spec{spec("a", 2*lvm.GiB, ""), spec("b", 2*lvm.GiB, "")}, 1},
		"beside two readers": {[]lvm.Spec{spec("a", 0, lvm.AccessReplay), spec("b", 0, lvm.AccessReplay), spec("c", full, "")}, 3},
		"one byte too many":  {[]lvm.Spec{spec("a", 0, lvm.AccessReplay), spec("b", 0, lvm.AccessReplay), spec("c", full+1, "")}, 2},
	} {
		if planned, err := alloc.Plan(s, fixture.TestCluster, test.specs); len(planned) != test.fits || (err == nil) != (test.fits == len(test.specs)) {
			t.Errorf("%s: planned %d, %v", what, len(planned), err)
		}
	}
}
