package lvm

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func planned(t testing.TB, s State, specs ...Spec) []placement {
	t.Helper()
	ps, err := plan(s, testCluster, specs)
	must(t, err)
	return ps
}

// anyState draws two groups, with a thin pool in some, and volumes of several layouts in them.
var anyState = rapid.Custom(func(t *rapid.T) State {
	s := State{Groups: []Group{anyGroup("one").Draw(t, "one"), anyGroup("two").Draw(t, "two")}}
	for i := range s.Groups {
		g := &s.Groups[i]
		if rapid.IntRange(0, 3).Draw(t, "an admin's pool") > 0 || len(holes(*g)) == 0 {
			continue
		}
		h := holes(*g)[0]
		useRanges(g, []peRange{h.head(h.Count)})
		g.LVs = append(g.LVs, LV{Name: DefaultPool, Type: "thin-pool", Extents: h.Count,
			Thin: &ThinPool{Metadata: "m", ChunkSize: 64 * KiB * Bytes(rapid.IntRange(1, 5).Draw(t, "chunk")), Zero: true}},
			LV{Name: "m", Hidden: true, Extents: 1, Type: "linear"})
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "volumes") {
		class := anyClass("@fast").Draw(t, "class")
		if c, err := capacity(s, class); err == nil && c.Largest > 0 {
			size := max(1, c.Largest/Bytes(rapid.IntRange(1, 4).Draw(t, "share")))
			if ps, err := plan(s, testCluster, []Spec{{Name: fmt.Sprint("there-", i), Class: class, Required: size}}); err == nil {
				addCarving(s, ps[0].carve)
			}
		}
	}
	return s
})

// addCarving adds what a carving's commands make to its group, as the readers tell it: legs, pools and all.
func addCarving(s State, c *carving) {
	takeCarving(s, c)
	i := slices.IndexFunc(s.Groups, func(g Group) bool { return g.UUID == c.group.UUID })
	g := &s.Groups[i]
	lv := &g.LVs[slices.IndexFunc(g.LVs, func(lv LV) bool { return lv.Name == c.volume.ID.LV })]
	lv.UUID = "uuid-" + lv.Name
	class := c.volume.Class
	area := func(r peRange, behind Extents) Area {
		pv := slices.IndexFunc(g.PVs, func(pv PV) bool { return pv.Device == r.device })
		return Area{PV: g.PVs[pv].UUID, Start: r.first + behind}
	}
	seg := Segment{Extents: c.extents, Type: string(class.Layout), StripeSize: class.StripeSize}
	switch {
	case class.raid():
		seg.RegionSize = regionSize(c.group, class, c.extents)
		rows := c.extents / class.row()
		meta := raidMetadata(*g, rows, seg.RegionSize)
		var images []LV
		for n, r := range c.ranges {
			image := LV{Name: fmt.Sprintf("%s_rimage_%d", lv.Name, n), Hidden: true, Extents: rows, Type: "linear", UsedBy: []string{lv.Name},
				Segments: []Segment{{Extents: rows, Type: "linear", Areas: []Area{area(r, meta)}}}}
			seg.Areas = append(seg.Areas, Area{LV: image.Name})
			images = append(images, image)
		}
		lv.Segments = []Segment{seg}
		g.LVs = append(g.LVs, images...)
	case class.Layout == LayoutStriped:
		for _, r := range c.ranges {
			seg.Areas = append(seg.Areas, area(r, 0))
		}
		lv.Segments = []Segment{seg}
	case class.Layout == LayoutLinear:
		start := Extents(0)
		for _, r := range c.ranges {
			n := r.last - r.first + 1
			lv.Segments = append(lv.Segments, Segment{Start: start, Extents: n, Type: "linear", Areas: []Area{area(r, 0)}})
			start += n
		}
	}
}

func newVolume(t testing.TB, s State, spec Spec) Volume {
	t.Helper()
	p := planned(t, s, spec)[0]
	if p.carve == nil {
		t.Fatalf("%+v", p)
	}
	addCarving(s, p.carve)
	g, lv, v, err := s.find(p.carve.volume.ID)
	must(t, err)
	if _, ours, err := volumeOf(g, lv); err != nil || !ours {
		t.Fatal(err)
	}
	return v
}

// checkFree sees that ranges are free and do not overlap, and counts them.
func checkFree(t *rapid.T, g Group, ranges []peRange) (total Extents) {
	t.Helper()
	for i, r := range ranges {
		total += r.last - r.first + 1
		if !slices.ContainsFunc(holes(g), func(h hole) bool {
			return h.device == r.device && h.Start <= r.first && r.last < h.Start+h.Count
		}) {
			t.Fatalf("%+v is not free in %+v", r, g.PVs)
		}
		for _, other := range ranges[:i] {
			if other.device == r.device && r.first <= other.last && other.first <= r.last {
				t.Fatalf("%+v and %+v overlap", r, other)
			}
		}
	}
	return total
}
