package health

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

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
