package health

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

func TestParseThin(t *testing.T) {
	for params, want := range map[string]lvm.Bytes{"4096 8191": 2 * lvm.MiB, "0 -": 0, "8": 4 * lvm.KiB} {
		if got, err := parseThin(params); err != nil || got != want {
			t.Errorf("%q: %d, %v", params, got, err)
		}
	}
	for _, params := range []string{"", "Fail", "Error", "-1 0", "99999999999999999 1"} {
		if got, err := parseThin(params); err == nil {
			t.Errorf("%q: %d", params, got)
		}
	}
}

// TestGroupOfTheDriverAlone: a group belongs to the driver alone if every volume in it does.
func TestGroupOfTheDriverAlone(t *testing.T) {
	ours := lvm.LV{Name: "v", Managed: &lvm.Managed{}}
	for what, c := range map[string]struct {
		lvs  []lvm.LV
		want bool
	}{
		"no volume":         {nil, true},
		"the driver's":      {[]lvm.LV{ours, {Name: "v_rimage_0", Hidden: true}}, true},
		"one of the node's": {[]lvm.LV{ours, {Name: "root"}}, false},
	} {
		if got := oursAlone((lvm.Group{LVs: c.lvs})); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// TestLastSnapshot: the youngest ready snapshot of a volume counts.
func TestLastSnapshot(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	inv := report.Inventory{Volumes: []report.Volume{{ID: "a"}, {ID: "b"}}, Snapshots: []report.Snapshot{
		{Source: "a", State: string(lvm.StateReady), Created: at(2)}, {Source: "a", State: string(lvm.StateReady), Created: at(1)},
		{Source: "a", State: string(lvm.StateDeleting), Created: at(3)}, {Source: "gone", State: string(lvm.StateReady), Created: at(4)},
	}}
	addLastSnapshots(&inv)
	if a, b := inv.Volumes[0], inv.Volumes[1]; !a.LastSnapshot.Equal(at(2)) || !b.LastSnapshot.IsZero() {
		t.Errorf("got %+v", inv.Volumes)
	}
}

// TestPVEntries: each extent of a linear, a striped and a RAID volume, and of a thin pool, has its range and its owner.
func TestPVEntries(t *testing.T) {
	on := func(pv string, start lvm.Extents) lvm.Area { return lvm.Area{PV: pv, Start: start} }
	hidden := func(name, pv string, start, count lvm.Extents) lvm.LV {
		return lvm.LV{Name: name, Hidden: true, Segments: []lvm.Segment{{Type: "linear", Extents: count, Areas: []lvm.Area{on(pv, start)}}}}
	}
	g := lvm.Group{
		PVs: []lvm.PV{{UUID: "a", Device: "/dev/sda", Extents: 40, Free: []lvm.Run{{Start: 30, Count: 10}}}, {UUID: "b", Missing: true, Extents: 40}},
		LVs: []lvm.LV{
			{Name: "linear", Segments: []lvm.Segment{{Type: "linear", Extents: 5, Areas: []lvm.Area{on("a", 10)}}, {Type: "linear", Start: 5, Extents: 2, Areas: []lvm.Area{on("b", 0)}}}},
			{Name: "striped", Segments: []lvm.Segment{{Type: "striped", Extents: 20, Areas: []lvm.Area{on("a", 0), on("b", 2)}}}},
			{Name: "mirrored", Segments: []lvm.Segment{{Type: "raid1", Extents: 3, Areas: []lvm.Area{{LV: "image"}}, Metadata: []lvm.Area{{LV: "meta"}}}}},
			hidden("image", "a", 15, 3), hidden("meta", "a", 18, 1),
			{Name: "pool", Thin: &lvm.ThinPool{Data: "data", Metadata: "tmeta"}},
			{Name: "data", Hidden: true, Segments: []lvm.Segment{{Type: "raid1", Extents: 2, Areas: []lvm.Area{{LV: "leg"}}}}},
			hidden("leg", "a", 19, 2), hidden("tmeta", "b", 12, 1),
			{Name: "x", Hidden: true, Segments: []lvm.Segment{{Type: "raid1", Areas: []lvm.Area{{LV: "y"}}}}}, // a cycle ends
			{Name: "y", Hidden: true, Segments: []lvm.Segment{{Type: "raid1", Areas: []lvm.Area{{LV: "x"}}}}},
		},
	}
	of := func(start, count int64, lv, owner string) report.ExtentRange {
		return report.ExtentRange{Start: start, Count: count, LV: lv, Owner: owner}
	}
	want := []report.PV{
		{UUID: "a", Device: "/dev/sda", Extents: 40, Free: []report.ExtentRange{{Start: 30, Count: 10}}, Allocated: []report.ExtentRange{
			of(0, 10, "striped", ""), of(10, 5, "linear", ""), of(15, 3, "image", "mirrored"), of(18, 1, "meta", "mirrored"), of(19, 2, "leg", "pool")}},
		{UUID: "b", Missing: true, Extents: 40, Allocated: []report.ExtentRange{
			of(0, 2, "linear", ""), of(2, 10, "striped", ""), of(12, 1, "tmeta", "pool")}},
	}
	if diff := cmp.Diff(want, pvEntries(g)); diff != "" {
		t.Error(diff)
	}
}

// TestNotAccepted: one condition names the ignored devices with the command; another driver's volume that is just being attached is none.
func TestNotAccepted(t *testing.T) {
	now := time.Unix(1e9, 0)
	old := func(device string) lvm.UnacceptedPV {
		return lvm.UnacceptedPV{Device: device, PV: "uuid", Identity: "WWID naa.1", Reason: "it may be foreign", Since: now.Add(-notAcceptedAfter)}
	}
	fresh := old("/dev/new")
	fresh.Since = now.Add(-time.Second)
	if found := notAccepted(lvm.State{Unaccepted: []lvm.UnacceptedPV{fresh}}, now); found != nil {
		t.Errorf("too early: %+v", found)
	}
	found := notAccepted(lvm.State{Unaccepted: []lvm.UnacceptedPV{old("/dev/sda"), fresh, old("/dev/sdb")}}, now)
	if len(found) != 1 || found[0].Type != lvm.ConditionPhysicalVolumeNotAccepted || found[0].Cause != "/dev/sda /dev/sdb" {
		t.Fatalf("%+v", found)
	}
	for _, words := range []string{"/dev/sda (physical volume uuid, WWID naa.1): it may be foreign; /dev/sdb", "nodelvm disks accept /dev/sda"} {
		if !strings.Contains(found[0].Text, words) || strings.Contains(found[0].Text, "/dev/new") {
			t.Errorf("%q lacks %q", found[0].Text, words)
		}
	}
}
