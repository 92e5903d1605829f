package lvm

import (
	"slices"
	"strings"
	"testing"
)

// growing is a pool of ours with 100 extents of data that promises 250, in a group with so many extents free.
func growing(t testing.TB, free Extents) pool {
	t.Helper()
	g := Group{Name: "vg", UUID: "u", ExtentSize: 4 * MiB, PVs: []PV{{UUID: "p", Device: "/dev/sda", Extents: 1000, Allocatable: true}}}
	if free > 0 {
		g.PVs[0].Free = []Run{{0, free}}
	}
	g.LVs = []LV{
		{Name: "lvol0_pmspare", Extents: 2, Hidden: true},
		{Name: DefaultPool, Extents: 100, Type: "thin-pool", Tags: poolTags("c"), Thin: &ThinPool{Metadata: "meta", ChunkSize: 64 * KiB, Zero: true}},
		{Name: "meta", Extents: 2, Hidden: true},
		{Name: "volume", Extents: 250, Type: "thin", Pool: DefaultPool},
	}
	p, err := poolOf(g, Class{Pool: DefaultPool})
	must(t, err)
	return p
}

// filled is the status of the pool with so many of its 100 extents written.
func filled(extents int64) poolStatus {
	return poolStatus{mode: "rw", dataUsed: extents * 64, dataTotal: 6400, metadataUsed: 10, metadataTotal: 2048}
}

// TestPoolDue: a pool gets what it needs, as far as there is room, and no more than it has promised.
func TestPoolDue(t *testing.T) {
	metadata := filled(10)
	metadata.metadataUsed = 1229 // of 2048: just over 60 %
	behind, metadataBehind := filled(90), metadata
	behind.dataTotal, metadataBehind.metadataTotal = 6400-64, 2047
	late := usualPolicy
	late.GrowData = 90
	for _, test := range []struct {
		name   string
		free   Extents
		status poolStatus
		policy PoolPolicy
		want   poolNeed
	}{
		{"enough", 900, filled(79), usualPolicy, poolNeed{}},
		{"at the limit", 900, filled(80), usualPolicy, poolNeed{data: 250}}, // a step of 1 GiB would be 256 more
		{"another limit", 900, filled(89), late, poolNeed{}},
		{"little room", 30, filled(80), usualPolicy, poolNeed{data: 130}},
		{"no room", 0, filled(100), usualPolicy, poolNeed{}},
		{"metadata", 900, metadata, usualPolicy, poolNeed{metadata: 1}},
		{"metadata without room for the spare", 1, metadata, usualPolicy, poolNeed{}},
		{"metadata with just that", 2, metadata, usualPolicy, poolNeed{metadata: 1}},
		{"broken", 900, poolStatus{failed: true}, usualPolicy, poolNeed{}},
		{"more is there, and not yet in use", 900, behind, usualPolicy, poolNeed{refresh: true}},
		{"the same of metadata", 900, metadataBehind, usualPolicy, poolNeed{refresh: true}},
		{"the same, and it needs nothing", 900, poolStatus{mode: "rw", dataTotal: 6400, metadataTotal: 1024}, usualPolicy, poolNeed{}},
	} {
		p := growing(t, test.free)
		if got := p.due(test.status, test.policy); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
	p := growing(t, 900)
	p.ours = false
	if need := p.due(filled(100), usualPolicy); need != (poolNeed{}) {
		t.Errorf("an admin's pool: %+v", need)
	}
	p = growing(t, 900)
	p.promised = p.promise(100, 100)
	if need := p.due(filled(100), usualPolicy); need != (poolNeed{}) {
		t.Errorf("a pool that promises what it has: %+v", need)
	}
}

// TestPoolCrowded: what the group still has counts as the pool's; a pool that cannot run over is never crowded.
func TestPoolCrowded(t *testing.T) {
	metadata := filled(10)
	metadata.metadataUsed = 1229
	for _, test := range []struct {
		name   string
		free   Extents
		status poolStatus
		words  string // "": not crowded
	}{
		{"full, and much room", 140, filled(100), ""},
		{"room for all that is promised", 150, filled(100), ""},
		{"room for a little", 20, filled(96), "nearly full: 384 MiB of 400 MiB are written, 1000 MiB are promised, and volume group vg has 80 MiB left"},
		{"less written", 20, filled(95), ""},
		{"no room", 0, filled(80), "has 0 B left to enlarge it with"},
		{"metadata", 0, metadata, "the metadata of the thin pool vg/nodelvm-thin is nearly full (60.0 %)"},
		{"metadata with room", 2, metadata, ""},
		{"broken", 900, poolStatus{mode: "ro"}, "takes no writes (it is read-only)"},
	} {
		if got := growing(t, test.free).crowded(test.status); (got == "") != (test.words == "") || !strings.Contains(got, test.words) {
			t.Errorf("%s: %q, want %q", test.name, got, test.words)
		}
	}
}

// TestFullPoolOfAnAdmin: of a pool that the driver never enlarges, the group's room is no part of the answer, and the admin is
// asked to enlarge it.
func TestFullPoolOfAnAdmin(t *testing.T) {
	metadata := filled(10)
	metadata.metadataUsed = 1229
	for name, status := range map[string]poolStatus{"data": filled(100), "metadata": metadata} {
		p := growing(t, 900)
		p.ours = false
		got := p.crowded(status)
		if !strings.Contains(got, "nearly full") || !strings.Contains(got, "lvextend vg/nodelvm-thin") || strings.Contains(got, "add a disk") || strings.Contains(got, "left to enlarge") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestRefusalOfAnAdminsPool: what a volume can grow to is told as that, and not as what the pool can promise beside it.
func TestRefusalOfAnAdminsPool(t *testing.T) {
	p := growing(t, 900)
	p.ours = false
	class := Class{Layout: LayoutThin, Pool: p.name, Overprovision: 100}
	p.promised = p.promise(p.data, 100) - p.chunks(1)
	_, err := p.growth(95+2, 95, class, "c")
	if err == nil || strings.Contains(err.Error(), "more at") || !strings.Contains(err.Error(), "to this volume") {
		t.Errorf("the refusal of an extension: %v", err)
	}
	if _, err = p.growth(2, 0, class, "c"); err == nil || !strings.Contains(err.Error(), "more at") {
		t.Errorf("the refusal of a new volume: %v", err)
	}
}

// TestCrowdedPoolPromisesNothing: everything that would promise more is refused, in the pool's words.
func TestCrowdedPoolPromisesNothing(t *testing.T) {
	s := fiveDisks()
	v := newVolume(t, s, specIn("a", thinClass, 100*MiB))
	g := &s.Groups[0]
	i := slices.IndexFunc(g.LVs, func(lv LV) bool { return lv.Thin != nil })
	g.LVs[i].Thin.Crowded = "the thin pool is nearly full"
	if c, err := capacity(s, v.Class); err != nil || c != (Capacity{}) {
		t.Errorf("capacity %+v, %v", c, err)
	}
	_, err := planSnapshot(s, testCluster, SnapshotSpec{Name: "snap", Source: v.ID})
	if KindOf(err) != KindInsufficientCapacity || !strings.Contains(err.Error(), "is nearly full") {
		t.Errorf("snapshot: %v", err)
	}
	if _, err = planExtend(s, v, extending{required: v.Size + MiB, limit: 0}); KindOf(err) != KindOutOfRange || !strings.Contains(err.Error(), "is nearly full") {
		t.Errorf("extension: %v", err)
	}
	class := v.Class
	class.Group = g.Name
	if _, err = plan(s, testCluster, []Spec{{Name: "b", Class: class, Required: MiB}}); KindOf(err) != KindInsufficientCapacity || !strings.Contains(err.Error(), "is nearly full") {
		t.Errorf("volume: %v", err)
	}
}
