package thinpool

import (
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// growing is a managed pool with 100 extents of data and 250 provisioned, in a group with so many free extents.
func growing(t testing.TB, free lvm.Extents) alloc.Pool {
	t.Helper()
	g := lvm.Group{Name: "vg", UUID: "u", ExtentSize: 4 * lvm.MiB, PVs: []lvm.PV{{UUID: "p", Device: "/dev/sda", Extents: 1000, Allocatable: true}}}
	if free > 0 {
		g.PVs[0].Free = []lvm.Run{{Start: 0, Count: free}}
	}
	g.LVs = []lvm.LV{
		{Name: "lvol0_pmspare", Extents: 2, Hidden: true},
		{Name: lvm.DefaultPool, Extents: 100, Type: "thin-pool", Managed: &lvm.Managed{Pool: true}, Thin: &lvm.ThinPool{Metadata: "meta", ChunkSize: 64 * lvm.KiB, Zero: true}},
		{Name: "meta", Extents: 2, Hidden: true},
		{Name: "volume", Extents: 250, Type: "thin", Pool: lvm.DefaultPool},
	}
	p, err := alloc.PoolOf(g, lvm.Class{Pool: lvm.DefaultPool})
	fixture.Must(t, err)
	return p
}

// filled is the status of the pool with so many of its 100 extents written.
func filled(extents int64) lvm.PoolStatus {
	return lvm.PoolStatus{Mode: "rw", DataUsed: extents * 64, DataTotal: 6400, MetadataUsed: 10, MetadataTotal: 2048}
}

// TestPoolExtensionNeed: a pool gets what it needs, as far as the group has free extents, and no more than is provisioned.
func TestPoolExtensionNeed(t *testing.T) {
	metadata := filled(10)
	metadata.MetadataUsed = 1229 // of 2048: just over 60 %
	behind, metadataBehind := filled(90), metadata
	behind.DataTotal, metadataBehind.MetadataTotal = 6400-64, 2047
	late := alloc.UsualPolicy
	late.AutoextendThreshold = 90
	for _, test := range []struct {
		name   string
		free   lvm.Extents
		status lvm.PoolStatus
		policy lvm.PoolPolicy
		want   alloc.PoolNeed
	}{
		{"enough", 900, filled(79), alloc.UsualPolicy, alloc.PoolNeed{}},
		{"at the threshold", 900, filled(80), alloc.UsualPolicy, alloc.PoolNeed{Data: 250}}, // a step of 1 GiB would be 256 more
		{"another threshold", 900, filled(89), late, alloc.PoolNeed{}},
		{"few free extents", 30, filled(80), alloc.UsualPolicy, alloc.PoolNeed{Data: 130}},
		{"no free extents", 0, filled(100), alloc.UsualPolicy, alloc.PoolNeed{}},
		{"metadata", 900, metadata, alloc.UsualPolicy, alloc.PoolNeed{Metadata: 1}},
		{"metadata without free extents for the spare", 1, metadata, alloc.UsualPolicy, alloc.PoolNeed{}},
		{"metadata with just that", 2, metadata, alloc.UsualPolicy, alloc.PoolNeed{Metadata: 1}},
		{"broken", 900, lvm.PoolStatus{Failed: true}, alloc.UsualPolicy, alloc.PoolNeed{}},
		{"extended but not reloaded", 900, behind, alloc.UsualPolicy, alloc.PoolNeed{Refresh: true}},
		{"the same of metadata", 900, metadataBehind, alloc.UsualPolicy, alloc.PoolNeed{Refresh: true}},
		{"the same, and it needs nothing", 900, lvm.PoolStatus{Mode: "rw", DataTotal: 6400, MetadataTotal: 1024}, alloc.UsualPolicy, alloc.PoolNeed{}},
	} {
		p := growing(t, test.free)
		if got := p.Due(test.status, test.policy); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
	p := growing(t, 900)
	p.Ours = false
	if need := p.Due(filled(100), alloc.UsualPolicy); need != (alloc.PoolNeed{}) {
		t.Errorf("an admin's pool: %+v", need)
	}
	p = growing(t, 900)
	p.Provisioned = p.ProvisionLimit(100, 100)
	if need := p.Due(filled(100), alloc.UsualPolicy); need != (alloc.PoolNeed{}) {
		t.Errorf("a pool without overprovisioning: %+v", need)
	}
}

// TestPoolOvercommit: a group's free extents count as the pool's. A pool that cannot run out of space is never overcommitted.
func TestPoolOvercommit(t *testing.T) {
	metadata := filled(10)
	metadata.MetadataUsed = 1229
	for _, test := range []struct {
		name   string
		free   lvm.Extents
		status lvm.PoolStatus
		words  string // "": not overcommitted
	}{
		{"full, many free extents", 140, filled(100), ""},
		{"enough for all that is provisioned", 150, filled(100), ""},
		{"few free extents", 20, filled(96), "nearly full: 384 of 400 MiB are written, 1000 MiB are provisioned, and volume group vg has 80 MiB free"},
		{"less written", 20, filled(95), ""},
		{"no free extents", 0, filled(80), "has 0 B free to extend it. Delete volumes or snapshots in it, or add a disk to the group (vgextend vg DISK)"},
		{"metadata", 0, metadata, "the metadata of the thin pool vg/nodelvm-thin is nearly full (60.0 %)"},
		{"metadata with free extents", 2, metadata, ""},
		{"broken", 900, lvm.PoolStatus{Mode: "ro"}, "takes no writes (it is read-only)"},
	} {
		if got := growing(t, test.free).OvercommitReason(test.status); (got == "") != (test.words == "") || !strings.Contains(got, test.words) {
			t.Errorf("%s: %q, want %q", test.name, got, test.words)
		}
	}
}

// TestFullPoolOfAnAdmin: for a pool that the driver never extends, the message asks the admin to extend it and does not mention
// the group's free extents.
func TestFullPoolOfAnAdmin(t *testing.T) {
	metadata := filled(10)
	metadata.MetadataUsed = 1229
	for name, status := range map[string]lvm.PoolStatus{"data": filled(100), "metadata": metadata} {
		p := growing(t, 900)
		p.Ours = false
		got := p.OvercommitReason(status)
		if !strings.Contains(got, "nearly full") || !strings.Contains(got, "lvextend -L+SIZE vg/nodelvm-thin") || strings.Contains(got, "add a disk") || strings.Contains(got, "free to extend") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestRefusalOfAnAdminsPool: the error says how far a volume can grow, not what the pool can provision besides.
func TestRefusalOfAnAdminsPool(t *testing.T) {
	p := growing(t, 900)
	p.Ours = false
	class := lvm.Class{Layout: lvm.LayoutThin, Pool: p.Name, Overprovision: 100}
	p.Provisioned = p.ProvisionLimit(p.Data, 100) - p.Chunks(1)
	_, err := p.Growth(95+2, 95, class, "c")
	if err == nil || strings.Contains(err.Error(), "more, at") || !strings.Contains(err.Error(), "for this volume") {
		t.Errorf("the refusal of an extension: %v", err)
	}
	if _, err = p.Growth(2, 0, class, "c"); err == nil || !strings.Contains(err.Error(), "more, at") {
		t.Errorf("the refusal of a new volume: %v", err)
	}
}

// TestOvercommittedPoolProvisionsNothing: everything that would provision more is refused, with the pool's reason.
func TestOvercommittedPoolProvisionsNothing(t *testing.T) {
	s := fixture.FiveDisks()
	v := fixture.NewVolume(t, s, fixture.SpecIn("a", fixture.ThinClass, 100*lvm.MiB))
	g := &s.Groups[0]
	i := slices.IndexFunc(g.LVs, func(lv lvm.LV) bool { return lv.Thin != nil })
	g.LVs[i].Thin.OvercommitReason = "the thin pool is nearly full"
	if c, err := alloc.Capacity(s, v.Class); err != nil || c != (lvm.Capacity{}) {
		t.Errorf("capacity %+v, %v", c, err)
	}
	_, err := alloc.PlanSnapshot(s, fixture.TestCluster, lvm.SnapshotSpec{Name: "snap", Source: v.ID})
	if lvm.KindOf(err) != lvm.KindInsufficientCapacity || !strings.Contains(err.Error(), "is nearly full") {
		t.Errorf("snapshot: %v", err)
	}
	if _, err = alloc.PlanExtend(s, v, alloc.ExtendRequest{Required: v.Size + lvm.MiB, Limit: 0}); lvm.KindOf(err) != lvm.KindOutOfRange || !strings.Contains(err.Error(), "is nearly full") {
		t.Errorf("extension: %v", err)
	}
	class := v.Class
	class.Group = string(g.Name)
	if _, err = alloc.Plan(s, fixture.TestCluster, []lvm.Spec{{Name: "b", Class: class, Required: lvm.MiB}}); lvm.KindOf(err) != lvm.KindInsufficientCapacity || !strings.Contains(err.Error(), "is nearly full") {
		t.Errorf("volume: %v", err)
	}
}
