package health

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/report"
)

// TestHealth: Health finds each condition, of the right volume, with a text that names the cause, and without an LVM command.
func TestHealth(t *testing.T) {
	node, b, d := hosttest.Started(t)
	spec := func(name string, layout lvm.Layout) lvm.Spec {
		s := b.Spec(name, 16*lvm.MiB)
		s.Class = lvm.Class{Group: b.Group, Layout: layout}
		return s
	}
	plain, mirror := d.MustCreate(t, spec("plain", lvm.LayoutLinear)), d.MustCreate(t, spec("mirror", lvm.LayoutRAID1))
	large := spec("thin", lvm.LayoutThin)
	large.Required, large.Class.Overprovision = 4*lvm.GiB, 1000
	thin := d.MustCreate(t, large)
	d = b.Start(t) // no volume waits for its ready tag
	check := func(what string, want map[lvm.ConditionType]string) {
		t.Helper()
		var findings []lvm.Condition
		d.Counted(t, "Health", 0, func() {
			findings = d.Conditions(t)
		})
		for _, f := range findings {
			if words, expected := want[f.Type]; !expected || !strings.Contains(f.Text, words) || string(f.Group) != b.Group {
				t.Errorf("%s: %s: %+v", what, f.Type, f)
			}
			delete(want, f.Type)
		}
		if len(want) > 0 {
			t.Errorf("%s: not found: %v", what, want)
		}
	}
	device := func(v lvm.Volume) string {
		path := d.MustDevice(t, v)
		return path
	}
	check("healthy", nil)

	node.SetStatus(device(mirror), "raid", "raid1 2 AD 8192/32768 idle 0 0 -")
	check("a failed leg", map[lvm.ConditionType]string{lvm.ConditionVolumeDegraded: "1 of its 2 legs have failed (AD)"})
	node.SetStatus(device(mirror), "raid", "raid1 2 Aa 8192/32768 recover 0 0 -")
	check("a leg that is rebuilt", map[lvm.ConditionType]string{lvm.ConditionVolumeRebuilding: "25.0 % done"})
	node.SetStatus(device(mirror), "raid", "raid1 2 aa 8192/32768 resync 0 0 -")
	check("a new mirror in its first synchronization", nil)
	node.SetStatus(device(mirror), "raid", "raid1 2 DD 8192/32768 idle 0 0 -")
	check("no leg left", map[lvm.ConditionType]string{lvm.ConditionVolumeDataMissing: "more than the layout tolerates"})
	node.SetStatus(device(mirror), "raid", "raid1 2 AA 32768/32768 idle 0 0 -")

	pool := poolPath(t, node)
	for status, want := range map[string]map[lvm.ConditionType]string{
		"1 10/1000 1800/2000 - rw discard_passdown error_if_no_space - 128":                {lvm.ConditionThinPoolNearlyFull: "data 90.0 %"},
		"1 10/1000 1799/2000 - rw discard_passdown error_if_no_space - 128":                {},
		"1 800/1000 1/2000 - rw discard_passdown error_if_no_space - 128":                  {lvm.ConditionThinPoolNearlyFull: "metadata 80.0 %"},
		"1 10/1000 2000/2000 - out_of_data_space discard_passdown error_if_no_space - 128": {lvm.ConditionThinPoolFull: "is full (data 100.0 %"},
		"1 10/1000 1/2000 - ro discard_passdown error_if_no_space needs_check 128":         {lvm.ConditionThinPoolFailed: "its metadata must be checked"},
		"1 1000/1000 1/2000 - ro discard_passdown error_if_no_space - 128":                 {lvm.ConditionThinPoolFull: "metadata 100.0 %"},
		"Fail": {lvm.ConditionThinPoolFailed: "it has failed"},
	} {
		node.SetStatus(pool, "thin-pool", status)
		check(status, want)
	}
	node.SetStatus(pool, "thin-pool", "1 10/1000 1/2000 - rw discard_passdown error_if_no_space - 128")
	checkTransactions(t, node, b, check)

	node.Suspend(device(plain))
	check("suspended", map[lvm.ConditionType]string{lvm.ConditionVolumeSuspended: "I/O to it waits"})
	d = b.Start(t) // resumes it
	check("resumed", nil)

	problem := func(p string) { node.Change(b.Group, func(g *lvm.Group) { g.Problem = p }) }
	problem("it is exported")
	check("unusable", map[lvm.ConditionType]string{lvm.ConditionVolumeGroupUnusable: "it is exported"})
	silence := func(is bool) { node.Change(b.Group, func(g *lvm.Group) { g.PVs[0].Unresponsive = is }) }
	silence(true)
	check("silent", map[lvm.ConditionType]string{lvm.ConditionDiskUnresponsive: "it is exported"})
	problem("")
	silence(false)

	blocks := func(size lvm.Bytes, pv string) {
		node.Change(b.Group, func(g *lvm.Group) {
			for i := range g.PVs {
				if g.PVs[i].BlockSize = 512; g.PVs[i].UUID == pv {
					g.PVs[i].BlockSize = size
				}
			}
		})
	}
	blocks(4096, legOf(t, node, b.Group, plain.ID.LV))
	check("mixed block sizes", map[lvm.ConditionType]string{lvm.ConditionMixedBlockSizes: "has disks with logical blocks of 512 bytes"})
	blocks(4096, legOf(t, node, b.Group, mirror.ID.LV+"_rimage_0"))
	check("a volume on both", map[lvm.ConditionType]string{lvm.ConditionMixedBlockSizes: "On both are " + mirror.ID.LV})
	blocks(512, "")

	lost := legOf(t, node, b.Group, plain.ID.LV)
	lose := func(is bool) {
		node.Change(b.Group, func(g *lvm.Group) {
			for i := range g.PVs {
				g.PVs[i].Missing = is && g.PVs[i].UUID == lost
			}
		})
	}
	lose(true)
	findings := d.Conditions(t)
	if !hosttest.HasCondition(findings, lvm.ConditionPhysicalVolumeMissing, "") || !hosttest.HasCondition(findings, lvm.ConditionVolumeDataMissing, plain.UUID) || hosttest.HasCondition(findings, lvm.ConditionVolumeDataMissing, mirror.UUID) {
		t.Errorf("a disk is missing: %+v", findings)
	}
	lose(false)
	checkCauses(t, node, b, d, mirror)
	m := hosttest.Report(d.Host)
	i := slices.IndexFunc(m.Groups, func(g report.Group) bool { return string(g.Name) == b.Group })
	if p := m.Groups[i].Pools; len(p) != 1 || p[0].Name != lvm.DefaultPool || p[0].Provisioned != thin.Size || p[0].Size == 0 || p[0].MetadataUsed == 0 || m.MetadataDifference != "" {
		t.Errorf("it reports %+v", m)
	}
}

// checkCauses: the missing disk is a condition's cause, so that another one is reported again.
func checkCauses(t *testing.T, node *lvmtest.Node, b hosttest.Fixture, d *hosttest.Driver, mirror lvm.Volume) {
	t.Helper()
	causes := map[string]bool{}
	for _, image := range []string{"_rimage_0", "_rimage_1"} {
		leg := legOf(t, node, b.Group, mirror.ID.LV+image)
		miss := func(is bool) {
			node.Change(b.Group, func(g *lvm.Group) {
				for i := range g.PVs {
					g.PVs[i].Missing = is && g.PVs[i].UUID == leg
				}
			})
		}
		miss(true)
		for _, c := range d.Conditions(t) {
			if c.Type == lvm.ConditionVolumeDegraded || c.Type == lvm.ConditionPhysicalVolumeMissing {
				causes[string(c.Type)+c.Cause] = true
			}
		}
		miss(false)
	}
	if len(causes) != 4 {
		t.Errorf("two conditions with two missing disks have the causes %v", causes)
	}
}

// checkTransactions: a pool and LVM's metadata with different transaction ids are a condition with both numbers, unless LVM has messages for
// the pool. The pool's is 1.
func checkTransactions(t *testing.T, node *lvmtest.Node, b hosttest.Fixture, check func(what string, want map[lvm.ConditionType]string)) {
	t.Helper()
	inMetadata := func(id uint64, messages ...string) {
		changePool(node, b.Group, func(pool *lvm.ThinPool) { pool.TransactionID, pool.Messages = id, messages })
	}
	for id, words := range map[uint64]string{
		0: "transaction_id = 0 for thin pool " + b.Group + "/" + lvm.DefaultPool + ", and the pool itself has 1: the metadata is older than the pool",
		2: "transaction_id = 2 for thin pool " + b.Group + "/" + lvm.DefaultPool + ", and the pool itself has 1: the metadata is newer than the pool",
	} {
		inMetadata(id)
		check("another transaction", map[lvm.ConditionType]string{lvm.ConditionThinPoolTransactionMismatch: words})
	}
	inMetadata(2, "delete 7")
	check("a message is on its way", nil)
	inMetadata(1, "delete 7")
	check("a message that the pool has", nil)
	inMetadata(3, "delete 7")
	check("a message that the pool refuses", map[lvm.ConditionType]string{lvm.ConditionThinPoolTransactionMismatch: "has 1"})
	inMetadata(1)
	check("the same again", nil)
}

// TestPoolInChange: a pool that has another transaction than a reading of LVM's metadata is in order if both changed a moment later.
func TestPoolInChange(t *testing.T) {
	node, b, d := hosttest.Started(t)
	d.MustCreate(t, b.Thin("v", 8*lvm.MiB, lvm.ID{}))
	d = b.Start(t) // no volume waits for its ready tag
	pool := poolPath(t, node)
	for what, later := range map[string]struct {
		metadata uint64
		status   string
	}{
		"the pool follows": {2, "2"}, "the metadata follows": {3, "3"},
	} {
		node.SetStatus(pool, "thin-pool", "3 10/1000 1/2000 - rw discard_passdown error_if_no_space - 128")
		set := func(id uint64) {
			changePool(node, b.Group, func(pool *lvm.ThinPool) { pool.TransactionID = id })
		}
		set(2)
		changed := time.AfterFunc(500*time.Millisecond, func() {
			node.SetStatus(pool, "thin-pool", later.status+" 10/1000 1/2000 - rw discard_passdown error_if_no_space - 128")
			set(later.metadata)
		})
		if found := d.Conditions(t); len(found) > 0 {
			t.Errorf("%s: %+v", what, found)
		}
		changed.Stop()
	}
}

// TestHealthScope: what Health can check of volumes, pools and groups changes with their devices; findings name their group and
// pool.
func TestHealthScope(t *testing.T) {
	node, b, d := hosttest.Started(t)
	spec := b.Spec("mirror", 16*lvm.MiB)
	spec.Class = lvm.Class{Group: b.Group, Layout: lvm.LayoutRAID1}
	mirror := d.MustCreate(t, spec)
	spec = b.Spec("thin", 16*lvm.MiB)
	spec.Class = lvm.Class{Group: b.Group, Layout: lvm.LayoutThin}
	thin := d.MustCreate(t, spec)
	d = b.Start(t) // no volume waits for its ready tag
	scope := func() (o lvm.HealthScope) {
		t.Helper()
		d.Counted(t, "HealthScope", 0, func() {
			var err error
			o, err = d.HealthScope(t.Context())
			hosttest.Must(t, err)
		})
		return o
	}
	pool := string(thin.ID.VG) + "/" + lvm.DefaultPool
	o := scope()
	if !o.Groups[thin.ID.VG] || len(o.Volumes) != 2 || o.Volumes[thin.UUID] != (lvm.VolumeScope{Active: true}) ||
		o.Volumes[mirror.UUID] != (lvm.VolumeScope{Active: true, NeedsKernel: true}) || !o.Pools[pool] || len(o.Pools) != 1 {
		t.Errorf("all is active: %+v", o)
	}
	node.SetStatus(poolPath(t, node), "thin-pool", "1 10/1000 2000/2000 - out_of_data_space discard_passdown error_if_no_space - 128")
	findings := d.Conditions(t)
	if len(findings) != 1 || findings[0].VG != thin.ID.VG || findings[0].Pool != lvm.DefaultPool {
		t.Errorf("a full pool: %+v", findings)
	}
	for _, name := range []string{thin.ID.LV, mirror.ID.LV, lvm.DefaultPool} {
		b.Admin(t, "lvchange", "-y", "-an", b.Group+"/"+name)
	}
	o = scope()
	if v, here := o.Volumes[thin.UUID]; !here || v.Active || o.Volumes[mirror.UUID].Active || o.Pools[pool] || len(o.Pools) != 1 {
		t.Errorf("nothing is active: %+v", o)
	}
	hosttest.Must(t, d.Delete(t.Context(), mirror.ID))
	d.MustRemove(t, thin)
	if o = scope(); o.Groups[thin.ID.VG] || len(o.Volumes) != 0 || len(o.Pools) != 0 || len(o.Groups) == 0 {
		t.Errorf("no volume is left: %+v", o)
	}
}

// changePool changes LVM's metadata of a group's one thin pool.
func changePool(node *lvmtest.Node, group string, change func(*lvm.ThinPool)) {
	node.Change(group, func(g *lvm.Group) {
		for i := range g.LVs {
			if g.LVs[i].Thin != nil {
				change(g.LVs[i].Thin)
			}
		}
	})
}

// poolPath returns the device of the node's one thin pool.
func poolPath(t testing.TB, node *lvmtest.Node) string {
	t.Helper()
	devices, err := node.Kernel().Devices()
	hosttest.Must(t, err)
	for _, d := range devices {
		if strings.HasSuffix(d.UUID, "-tpool") {
			return d.Path
		}
	}
	t.Fatal("no thin pool is active")
	return ""
}

// legOf returns the PV of a volume's first extent.
func legOf(t testing.TB, node *lvmtest.Node, group, lv string) string {
	t.Helper()
	s, err := node.Reader().Read(t.Context())
	hosttest.Must(t, err)
	for _, g := range s.Groups {
		for _, other := range g.LVs {
			if string(g.Name) == group && other.Name == lv {
				return other.Segments[0].Areas[0].PV
			}
		}
	}
	t.Fatalf("no volume %s in %s", lv, group)
	return ""
}
