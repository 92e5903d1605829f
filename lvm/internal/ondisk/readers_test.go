package ondisk

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// TestDisksAgreeWithReport: both readers return the same for disks and reports that real LVM of two generations wrote.
func TestDisksAgreeWithReport(t *testing.T) {
	for _, scenario := range fixture.Scenarios(t) {
		t.Run(filepath.Base(scenario), func(t *testing.T) {
			node := fixture.NewTestNode(t)
			node.Plug(t, scenario)
			direct, err := disksOf(node).Read(context.Background())
			fixture.Must(t, err)
			if len(direct.Groups) == 0 || len(direct.UnreadDevices) > 0 {
				t.Fatalf("%d groups, unread: %v", len(direct.Groups), direct.UnreadDevices)
			}
			reports, err := filepath.Glob(filepath.Join(scenario, "*.json"))
			fixture.Must(t, err)
			if len(reports) == 0 {
				t.Fatal("no report was captured")
			}
			for _, path := range reports {
				report := readReport(t, path)
				for i := range report.Groups {
					for j := range report.Groups[i].PVs {
						pv := &report.Groups[i].PVs[j]
						pv.Device = strings.Replace(pv.Device, "/dev", node.Dev, 1)
						pv.ReappearedDevice = strings.Replace(pv.ReappearedDevice, "/dev", node.Dev, 1)
					}
					report.Groups[i] = withComparableProblem(report.Groups[i], direct.Groups[i])
				}
				if found := compareStates(direct, report, direct); len(found.differences) > 0 {
					t.Errorf("%s: %s", path, found.differences)
				}
				report.Devices = direct.Devices
				if diff := cmp.Diff(report, direct); diff != "" {
					t.Errorf("%s (-) and disks (+) differ:\n%s", path, diff)
				}
			}
		})
	}
}

// TestScenarios: the expected content of each scenario, so that the two readers cannot agree on an error.
func TestScenarios(t *testing.T) {
	read := func(name string) lvm.State {
		node := fixture.NewTestNode(t)
		node.Plug(t, "testdata/groups/"+name)
		state, err := disksOf(node).Read(context.Background())
		fixture.Must(t, err)
		return state
	}
	for name, problem := range map[string]string{
		"exported": "exported", "foreign": `"another-host", so only the host with this ID uses it`, "fixed": "not resizeable", "linear": "", "missing": "",
	} {
		if got := read(name).Groups[0].Problem; (problem == "") != (got == "") || !strings.Contains(got, problem) {
			t.Errorf("%s: problem %q does not speak of %q", name, got, problem)
		}
	}
	linear := read("linear").Groups[0]
	if diff := cmp.Diff([]string{"fast", "vendor.x/y"}, linear.Tags); diff != "" {
		t.Error(diff)
	}
	lvs := map[string]lvm.LV{}
	for _, lv := range linear.LVs {
		lvs[lv.Name] = lv
	}
	if lvs["a"].Extents != 6 || lvs["f"].Extents != 9 || lvs["f"].Type != "linear" || len(lvs) != 5 {
		t.Errorf("volumes %+v", lvs)
	}
	v, ours := lvs["pvc-0f0e"].AsVolume()
	want := lvm.Volume{ID: lvm.ID{VG: linear.UUID, LV: "pvc-0f0e"}, UUID: lvs["pvc-0f0e"].UUID, Name: "pvc-0f0e", Claim: "ns/data-0", Cluster: "8c-1",
		Group: "vg", Class: lvm.Class{Group: "vg", Layout: lvm.LayoutLinear, Wipe: lvm.WipeZero}, State: lvm.StateReady, Size: 12 * lvm.MiB}
	if diff := cmp.Diff(want, v); diff != "" || !ours {
		t.Errorf("ours %v, %s", ours, diff)
	}
	for _, name := range []string{"missing", "returned"} {
		missing := 0
		if err := lvm.CheckNoNewMissingPV(read(name).Groups[0]); (err == nil) != (name == "returned") {
			t.Errorf("%s: another commit does harm: %v", name, err)
		}
		for _, pv := range read(name).Groups[0].PVs {
			if pv.Missing {
				missing++
				if pv.Device != "" || (pv.ReappearedDevice != "") != (name == "returned") {
					t.Errorf("%s: a missing PV has the device %q, and is back as %q", name, pv.Device, pv.ReappearedDevice)
				}
			}
		}
		if missing != 1 {
			t.Errorf("%s: %d PVs are missing", name, missing)
		}
	}
	for name, proved := range map[string]bool{"linear": true, "missing": false, "returned": true} {
		if why := read(name).Groups[0].IncompleteReason(); (why == "") != proved {
			t.Errorf("%s: what is not there is proved: %v (%s)", name, proved, why)
		}
	}
	if idle := read("idle").Groups[0]; lvm.CheckWritable(lvm.State{Groups: []lvm.Group{idle}}, idle) != nil || idle.FreeExtents() != 2*15-3 {
		t.Errorf("a disk that nothing lies on was away for a while: %+v", idle)
	}
	if groups := read("samename").Groups; len(groups) != 2 || groups[0].Name != groups[1].Name {
		t.Errorf("same name: %+v", groups)
	}
	if striped := read("striped").Groups[0].LVs; striped[1].Type != "striped" || striped[1].Extents != 6 {
		t.Errorf("striped: %+v", striped)
	}
}

// TestLayeredVolumes: volumes that are made of others, and those others; every extent that any of them has is not free.
func TestLayeredVolumes(t *testing.T) {
	type volume struct {
		kind   string
		hidden bool
		usedBy string
	}
	for _, c := range []struct {
		scenario, lv string
		want         volume
	}{
		{"raid", "r1", volume{"raid1", false, ""}},
		{"raid", "r1_rimage_0", volume{"linear", true, "r1"}},
		{"raid", "r5_rmeta_2", volume{"linear", true, "r5"}},
		{"raid", "m_mlog", volume{"linear", true, "m"}},
		{"thin", "pool", volume{"thin-pool", false, "t text tsnap"}},
		{"thin", "t", volume{"thin", false, ""}}, // its snapshot survives it
		{"thin", "ext", volume{"linear", false, "text"}},
		{"thin", "lvol0_pmspare", volume{"linear", true, ""}},
		{"snapshot", "o", volume{"linear", false, "snap"}},
		{"snapshot", "snap", volume{"linear", false, ""}},
		{"cache", "fast_cvol", volume{"linear", true, "slow"}},
		{"integrity", "r_rimage_0_imeta", volume{"linear", true, "r_rimage_0"}},
		{"moving", "pvmove0", volume{"mirror", true, "a"}},
		{"degraded", "r", volume{"raid1", false, ""}},
		{"layouts", "r10", volume{"raid10", false, ""}},
		{"snapshots", "s2", volume{"thin", false, ""}},
		{"halfraid", "r1_rmeta_0", volume{"linear", true, "r1"}}, // to LVM it is visible, and it has r1's tags
	} {
		node := fixture.NewTestNode(t)
		node.Plug(t, "testdata/groups/"+c.scenario)
		state, err := disksOf(node).Read(context.Background())
		fixture.Must(t, err)
		i := slices.IndexFunc(state.Groups[0].LVs, func(lv lvm.LV) bool { return lv.Name == c.lv })
		if i < 0 {
			t.Errorf("%s: no %s", c.scenario, c.lv)
			continue
		}
		lv := state.Groups[0].LVs[i]
		if got := (volume{lv.Type, lv.Hidden, strings.Join(lv.UsedBy, " ")}); got != c.want {
			t.Errorf("%s: %s is %+v, want %+v", c.scenario, c.lv, got, c.want)
		}
	}
}

// TestSegments: the segments of volumes, taken from lvs -a -o+devices.
func TestSegments(t *testing.T) {
	group := func(scenario string) lvm.Group {
		node := fixture.NewTestNode(t)
		node.Plug(t, "testdata/groups/"+scenario)
		state, err := disksOf(node).Read(context.Background())
		fixture.Must(t, err)
		return state.Groups[0]
	}
	images := func(lv string, n int) (areas, metadata []lvm.Area) {
		for i := range n {
			areas = append(areas, lvm.Area{LV: fmt.Sprintf("%s_rimage_%d", lv, i)})
			metadata = append(metadata, lvm.Area{LV: fmt.Sprintf("%s_rmeta_%d", lv, i)})
		}
		return areas, metadata
	}
	layouts := group("layouts")
	for _, want := range []struct {
		lv   string
		legs int
		lvm.Segment
	}{
		{"r1", 3, lvm.Segment{Extents: 6, Type: "raid1", RegionSize: 2 * lvm.MiB}},
		{"r6", 5, lvm.Segment{Extents: 3, Type: "raid6", RegionSize: 2 * lvm.MiB, StripeSize: 32 * lvm.KiB}},
		{"r10", 4, lvm.Segment{Extents: 8, Type: "raid10", RegionSize: 2 * lvm.MiB, StripeSize: 64 * lvm.KiB}},
		{"r5", 3, lvm.Segment{Extents: 10, Type: "raid5", RegionSize: 2 * lvm.MiB, StripeSize: 16 * lvm.KiB}},
	} {
		want.Areas, want.Metadata = images(want.lv, want.legs)
		lv := layouts.FindLV(want.lv)
		if diff := cmp.Diff([]lvm.Segment{want.Segment}, lv.Segments); diff != "" || lv.Pending {
			t.Errorf("%s: pending %v, %s", want.lv, lv.Pending, diff)
		}
	}
	pv := func(path string) string {
		for _, pv := range layouts.PVs {
			if strings.HasSuffix(pv.Device, path) {
				return pv.UUID
			}
		}
		return ""
	}
	s := layouts.FindLV("s")
	first := []lvm.Area{{PV: pv("loop0"), Start: 11}, {PV: pv("loop1"), Start: 11}}
	if len(s.Segments) != 2 || s.Segments[0].StripeSize != 8*lvm.KiB || s.Segments[1].Start != 4 || s.Created.IsZero() {
		t.Errorf("s: %+v", s)
	}
	if diff := cmp.Diff(first, s.Segments[0].Areas); diff != "" {
		t.Error(diff)
	}
	halfMade := group("halfraid")
	if half := halfMade.FindLV("r1"); !half.Pending {
		t.Errorf("a mirror that was never completed: %+v", half)
	}
}

// TestThinVolumes: thin pools and their volumes.
func TestThinVolumes(t *testing.T) {
	node := fixture.NewTestNode(t)
	node.Plug(t, "testdata/groups/snapshots")
	state, err := disksOf(node).Read(context.Background())
	fixture.Must(t, err)
	g := state.Groups[0]
	for name, want := range map[string]*lvm.ThinPool{
		"pool": {Data: "pool_tdata", Metadata: "pool_tmeta", ChunkSize: 128 * lvm.KiB, Zero: true, TransactionID: 5},
		"raw":  {Data: "raw_tdata", Metadata: "raw_tmeta", ChunkSize: 64 * lvm.KiB},
		"t":    nil,
	} {
		if diff := cmp.Diff(want, g.FindLV(name).Thin); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	for name, want := range map[string][2]string{"t": {"pool", ""}, "s2": {"pool", ""}, "s3": {"pool", "s2"}, "pool_tdata": {}} {
		if lv := g.FindLV(name); [2]string{lv.Pool, lv.Origin} != want {
			t.Errorf("%s: pool %q, origin %q, not %q", name, lv.Pool, lv.Origin, want)
		}
	}
}

// TestThinMessages: LVM has a message for a pool, so the volume that it creates is incomplete.
func TestThinMessages(t *testing.T) {
	text := captured(t, "message")
	im, err := importGroup(text)
	fixture.Must(t, err)
	if diff := cmp.Diff([]string{"create t", "delete 7"}, im.group.FindLV("pool").Thin.Messages); diff != "" {
		t.Error(diff)
	}
	for name, want := range map[string]bool{"t": true, "s2": false, "pool": false} {
		if got := im.group.HasPendingCreate(*im.group.FindLV(name)); got != want {
			t.Errorf("%s was cut off: %t, want %t", name, got, want)
		}
	}
	for _, unknown := range []string{"trim = 7", `delete = "t"`, "create = 7"} {
		if im, err := importGroup(strings.Replace(text, "delete = 7", unknown, 1)); err != nil || im.group.Unreadable == "" {
			t.Errorf("%s: %v", unknown, err)
		}
	}
}

// TestDamage: what captured groups with missing disks lose.
func TestDamage(t *testing.T) {
	for _, c := range []struct {
		scenario, lv string
		want         lvm.Damage
	}{
		{"degraded", "r", lvm.Damage{Of: 2, Legs: 1}},
		{"missing", "stays", lvm.Damage{}},
		{"missing", "gone", lvm.Damage{Lost: true}},
		{"lostlegs", "s", lvm.Damage{Lost: true}},
		{"lost", "r1", lvm.Damage{Of: 3, Legs: 1}},
		{"lost", "r6", lvm.Damage{Of: 5, Legs: 2}},
		{"lost", "r5", lvm.Damage{Of: 3, Legs: 1}},
		{"lost", "r10", lvm.Damage{Of: 4, Legs: 1}},
		{"lost", "s", lvm.Damage{Lost: true}},
		{"layouts", "r6", lvm.Damage{}},
		{"thinonraid", "t", lvm.Damage{}},
	} {
		node := fixture.NewTestNode(t)
		node.Plug(t, "testdata/groups/"+c.scenario)
		g := readNode(node, t).Groups[0]
		missing := map[string]bool{}
		for _, pv := range g.PVs {
			missing[pv.UUID] = pv.Missing
		}
		if got := g.DamageOf(*g.FindLV(c.lv), missing, 0); got != c.want {
			t.Errorf("%s/%s: %+v, want %+v", c.scenario, c.lv, got, c.want)
		}
	}
}

// TestDamageBelow: a thin volume whose pool has its data on a mirror, and its metadata on one disk.
func TestDamageBelow(t *testing.T) {
	node := fixture.NewTestNode(t)
	node.Plug(t, "testdata/groups/thinonraid")
	g := readNode(node, t).Groups[0]
	metadata := g.FindLV("pool_tmeta").Segments[0].Areas[0].PV
	for _, pv := range g.PVs {
		want := lvm.Damage{Of: 2, Legs: 1, Lost: pv.UUID == metadata}
		if got := g.DamageOf(*g.FindLV("t"), map[string]bool{pv.UUID: true}, 0); got != want {
			t.Errorf("without %s: %+v, want %+v", pv.Device, got, want)
		}
	}
}

// TestAutoActivationIsRead: the reader reads a group's flag from its metadata (vgchange --setautoactivation).
func TestAutoActivationIsRead(t *testing.T) {
	for scenario, want := range map[string]bool{"raid": true, "empty": false, "foreign": false} { // the latter by --setautoactivation n
		im, err := importGroup(captured(t, scenario))
		fixture.Must(t, err)
		if im.group.AutoActivation != want {
			t.Errorf("%s: %v", scenario, im.group.AutoActivation)
		}
	}
}
