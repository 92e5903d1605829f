package lvm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// make adds what a carving's commands make to its group, as the readers tell it: legs, pools and all.
func (s State) make(c *carving) {
	s.take(c)
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
	s.make(p.carve)
	g, lv, v, err := s.find(p.carve.volume.ID)
	must(t, err)
	if _, ours, err := volumeOf(g, lv); err != nil || !ours {
		t.Fatal(err)
	}
	return v
}

func argvOf(t testing.TB, steps []step, err error) []string {
	t.Helper()
	must(t, err)
	var lines []string
	for _, s := range steps {
		line := strings.Join(s.argv, " ")
		name, rest, _ := strings.Cut(line, " -y --devices ")
		name = strings.TrimSuffix(name, " -An")
		_, rest, _ = strings.Cut(rest, " ")
		lines = append(lines, name+" "+rest)
	}
	return lines
}

// TestSteps: the commands of each layout, on a group of five disks of 100 extents of 4 MiB.
func TestSteps(t *testing.T) {
	disk := []Run{{0, 100}}
	s := State{Groups: []Group{testGroup("vg", disk, []Run{{0, 10}, {50, 30}}, disk, disk, disk)}}
	tags := "--addtag nodelvm.v=1 --addtag nodelvm.state=creating --addtag nodelvm.cluster=cluster-1 --addtag nodelvm.name=a "
	name := lvName("a")
	for _, test := range []struct {
		class Class
		size  Bytes
		want  []string
	}{
		{Class{Layout: LayoutStriped}, 36 * MiB, []string{"lvcreate -ay -Wy -Zy --alloc normal --type striped -i 2 -I 64k -l 10 -n " + name + " " + tags +
			"--addtag nodelvm.layout=striped --addtag nodelvm.stripes=2 --addtag nodelvm.stripesize=64 -- vg /dev/vga:0-4 /dev/vgc:0-4"}},
		{Class{Layout: LayoutRAID1, Mirrors: 2}, 36 * MiB, []string{"lvcreate -ay -Wy -Zy --alloc normal --type raid1 -m 2 --regionsize 2048k -l 9 -n " + name + " " + tags +
			"--addtag nodelvm.layout=raid1 --addtag nodelvm.mirrors=2 -- vg /dev/vga:0-9 /dev/vgc:0-9 /dev/vgd:0-9"}},
		{Class{Layout: LayoutRAID5, StripeSize: 4 * MiB}, 4 * MiB, []string{"lvcreate -ay -Wy -Zy --alloc normal --type raid5 -i 2 -I 4096k --regionsize 4096k -l 2 -n " + name + " " + tags +
			"--addtag nodelvm.layout=raid5 --addtag nodelvm.stripes=2 --addtag nodelvm.stripesize=4096 -- vg /dev/vga:0-1 /dev/vgc:0-1 /dev/vgd:0-1"}},
		{Class{Layout: LayoutRAID6, Wipe: WipeNone}, 40 * 3 * 4 * MiB, nil},
		{Class{Layout: LayoutRAID6, Wipe: WipeNone}, 29 * 3 * 4 * MiB, []string{"lvcreate -ay -Wy -Zy --alloc normal --type raid6 -i 3 -I 64k --regionsize 2048k -l 87 -n " + name + " " + tags +
			"--addtag nodelvm.wipe=none --addtag nodelvm.layout=raid6 --addtag nodelvm.stripes=3 --addtag nodelvm.stripesize=64 -- vg /dev/vga:0-29 /dev/vgc:0-29 /dev/vgd:0-29 /dev/vge:0-29 /dev/vgb:50-79"}},
		{Class{Layout: LayoutRAID10}, 1, []string{"lvcreate -ay -Wy -Zy --alloc normal --type raid10 -i 2 -I 64k -m 1 --regionsize 2048k -l 2 -n " + name + " " + tags +
			"--addtag nodelvm.layout=raid10 --addtag nodelvm.stripes=2 --addtag nodelvm.stripesize=64 --addtag nodelvm.mirrors=1 -- vg /dev/vga:0-1 /dev/vgc:0-1 /dev/vgd:0-1 /dev/vge:0-1"}},
		// 500 extents of 4 MiB are 32000 chunks; with 4 mappings of 64 bytes each that is 7.8 MiB of metadata: 2 extents,
		// and 2 for the spare. The pool begins with what the disk has beside them, and grows to 1 GiB or the promise.
		{Class{Layout: LayoutThin}, 384 * MiB, []string{
			"lvcreate --type thin-pool -Zy --discards passdown --alloc normal -l 96 --poolmetadatasize 8192k -c 64k -n nodelvm-thin" +
				" --addtag nodelvm.v=1 --addtag nodelvm.kind=pool --addtag nodelvm.cluster=cluster-1 -- vg /dev/vga:0-99",
			"lvextend --alloc normal -l 256 -- vg/nodelvm-thin /dev/vgc:0-99 /dev/vge:0-59",
			"lvcreate -ay --type thin -V 402653184b --thinpool nodelvm-thin -n " + name + " " + tags + "--addtag nodelvm.layout=thin --addtag nodelvm.overprovision=100 -- vg"}},
	} {
		test.class.Group = "vg"
		ps, err := plan(s, testCluster, []Spec{{Name: "a", Class: test.class, Required: test.size}})
		if test.want == nil {
			if KindOf(err) != KindNoRoom {
				t.Errorf("%s of %s: %v", test.class.Layout, test.size, err)
			}
			continue
		}
		must(t, err)
		steps, err := ps[0].carve.steps()
		if diff := cmp.Diff(test.want, argvOf(t, steps, err)); diff != "" {
			t.Errorf("%s of %s: %s", test.class.Layout, test.size, diff)
		}
	}
}

// TestClassRules: each number is held to its layout's bounds, and the refusal tells them.
func TestClassRules(t *testing.T) {
	for _, test := range []struct {
		class Class
		words string
	}{
		{Class{Layout: "raid7"}, `"raid7" is not known`},
		{Class{Layout: LayoutStriped, Stripes: 1}, "2 to 128"},
		{Class{Layout: LayoutStriped, Stripes: 129}, "2 to 128"},
		{Class{Layout: LayoutStriped, Stripes: -2}, "2 to 128"},
		{Class{Layout: LayoutRAID6, Stripes: 2}, "3 to 62"},
		{Class{Layout: LayoutRAID5, Stripes: 64}, "2 to 63"},
		{Class{Layout: LayoutRAID10, Stripes: 33}, "2 to 32"},
		{Class{Layout: LayoutRAID10, Mirrors: 2}, "1 to 1"},
		{Class{Layout: LayoutRAID1, Mirrors: 10}, "1 to 9"},
		{Class{Layout: LayoutRAID1, Stripes: 2}, "has no stripes"},
		{Class{Layout: LayoutRAID1, StripeSize: 64 * KiB}, "has no stripeSize"},
		{Class{Stripes: 2}, "linear has no stripes"},
		{Class{Layout: LayoutRAID5, Mirrors: 1}, "has no mirrors"},
		{Class{Layout: LayoutStriped, StripeSize: 96 * KiB}, "power of two"},
		{Class{Layout: LayoutStriped, StripeSize: 2 * KiB}, "power of two"},
		{Class{Layout: LayoutStriped, StripeSize: 1 * GiB}, "power of two"},
		{Class{Layout: LayoutStriped, StripeSize: -4 * KiB}, "power of two"},
		{Class{Layout: LayoutThin, Overprovision: 99}, "100 to 10000"},
		{Class{Layout: LayoutThin, Wipe: WipeZero}, "is not wiped"},
		{Class{Layout: LayoutThin, Pool: "-n"}, "name of a thin pool"},
		{Class{Layout: LayoutThin, Pool: "vg/pool"}, "name of a thin pool"},
		{Class{Layout: LayoutThin, Pool: "@all"}, "name of a thin pool"},
		{Class{Layout: LayoutThin, Pool: "a_tdata"}, "name of a thin pool"},
		{Class{Layout: LayoutThin, Pool: "snapshot1"}, "name of a thin pool"},
		{Class{Layout: LayoutThin, Pool: strings.Repeat("p", 46)}, "name of a thin pool"},
		{Class{Layout: LayoutRAID1, Pool: "p"}, "has no thin pool"},
		{Class{Overprovision: 100}, "has no overprovision"},
		{Class{Layout: LayoutRAID1, Wipe: "shred"}, `"shred"`},
	} {
		test.class.Group = "vg"
		if _, err := checkClass(test.class); err == nil || KindOf(err) != KindInvalid || !strings.Contains(err.Error(), test.words) {
			t.Errorf("%+v: %v; want it to say %q", test.class, err, test.words)
		}
	}
	for layout, want := range map[Layout]Class{
		LayoutStriped: {Stripes: 2, StripeSize: 64 * KiB, Wipe: WipeZero},
		LayoutRAID1:   {Mirrors: 1, Wipe: WipeZero},
		LayoutRAID6:   {Stripes: 3, StripeSize: 64 * KiB, Wipe: WipeZero},
		LayoutRAID10:  {Stripes: 2, Mirrors: 1, StripeSize: 64 * KiB, Wipe: WipeZero},
		LayoutThin:    {Pool: DefaultPool, Overprovision: 100},
	} {
		want.Group, want.Layout = "vg", layout
		if got, err := checkClass(Class{Group: "vg", Layout: layout}); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", layout, got, err, want)
		}
	}
}

// TestLayoutRefusals: a group that cannot have the layout is no reason that another one could not.
func TestLayoutRefusals(t *testing.T) {
	disk := []Run{{0, 100}}
	g := testGroup("vg", disk, disk)
	odd := testGroup("odd", disk, disk)
	odd.ExtentSize = 384 * KiB
	zeroless := testGroup("zeroless", disk)
	zeroless.LVs = []LV{{Name: DefaultPool, Type: "thin-pool", Extents: 10, Thin: &ThinPool{ChunkSize: 64 * KiB}}}
	taken := testGroup("taken", disk)
	taken.LVs = []LV{{Name: DefaultPool, Type: "linear", Extents: 10}}
	crumbs := testGroup("crumbs", []Run{{0, 1}, {5, 1}, {10, 1}, {20, 1}})
	s := State{Groups: []Group{g, odd, zeroless, taken, crumbs}}
	for _, test := range []struct {
		class Class
		words string
	}{
		{Class{Group: "vg", Layout: LayoutRAID5}, "has 2 disks, and the layout needs 3"},
		{Class{Group: "odd", Layout: LayoutStriped, StripeSize: 256 * KiB}, "smaller stripeSize"},
		{Class{Group: "zeroless", Layout: LayoutThin}, "lvchange -Zy zeroless/nodelvm-thin"},
		{Class{Group: "taken", Layout: LayoutThin}, "is not a thin pool"},
		{Class{Group: "crumbs", Layout: LayoutThin}, "no room for the thin pool"},
	} {
		_, err := plan(s, testCluster, []Spec{{Name: "a", Class: test.class, Required: MiB}})
		if err == nil || KindOf(err) != KindNoRoom || !strings.Contains(err.Error(), test.words) {
			t.Errorf("%+v: %v; want it to say %q", test.class, err, test.words)
		}
		if c, err := capacity(s, test.class); err != nil || c != (Capacity{}) {
			t.Errorf("%+v: capacity %+v, %v", test.class, c, err)
		}
	}
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
		g.use([]peRange{h.head(h.Count)})
		g.LVs = append(g.LVs, LV{Name: DefaultPool, Type: "thin-pool", Extents: h.Count,
			Thin: &ThinPool{Metadata: "m", ChunkSize: 64 * KiB * Bytes(rapid.IntRange(1, 5).Draw(t, "chunk")), Zero: true}},
			LV{Name: "m", Hidden: true, Extents: 1, Type: "linear"})
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "volumes") {
		class := anyClass("@fast").Draw(t, "class")
		if c, err := capacity(s, class); err == nil && c.Largest > 0 {
			size := max(1, c.Largest/Bytes(rapid.IntRange(1, 4).Draw(t, "share")))
			if ps, err := plan(s, testCluster, []Spec{{Name: fmt.Sprint("there-", i), Class: class, Required: size}}); err == nil {
				s.make(ps[0].carve)
			}
		}
	}
	return s
})

// TestCapacityIsTrue: whatever the layout and the state, the largest volume is accepted, and every smaller one, on free
// extents only, each leg on a disk of its own; one byte more than the largest is refused, for a reason that holds.
func TestCapacityIsTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyState.Draw(t, "state")
		class := anyClass(rapid.SampledFrom([]string{"@fast", "one"}).Draw(t, "group")).Draw(t, "class")
		c, err := capacity(s, class)
		if err != nil || c.Largest > c.Available {
			t.Fatalf("capacity %+v, %v", c, err)
		}
		if c.Largest > 0 {
			for _, size := range []Bytes{c.Largest, Bytes(rapid.Int64Range(1, int64(c.Largest)).Draw(t, "size"))} {
				ps, err := plan(s, testCluster, []Spec{{Name: "a", Class: class, Required: size}})
				if err != nil {
					t.Fatalf("%d of %d is refused: %v", size, c.Largest, err)
				}
				checkCarving(t, s, ps[0].carve, size)
			}
		}
		_, err = plan(s, testCluster, []Spec{{Name: "a", Class: class, Required: c.Largest + 1}})
		if KindOf(err) != KindNoRoom {
			t.Fatalf("more than the largest, %d: %v", c.Largest+1, err)
		}
		groups, _ := groupsOf(s, class)
		for _, g := range groups {
			if reason := impossible(s, g, class, c.Largest+1); reason == "" {
				t.Fatalf("%d bytes would fit into %s: %+v", c.Largest+1, g.Name, g)
			}
		}
	})
}

// impossible finds by counting, not by planning, why a volume of the class cannot be made; "" if it could.
func impossible(s State, g Group, class Class, size Bytes) string {
	if obstacle(s, g, class) != nil {
		return "an obstacle"
	}
	rows := Extents((size + g.ExtentSize*Bytes(class.row()) - 1) / (g.ExtentSize * Bytes(class.row())))
	switch legs := class.legs(); {
	case class.Layout == LayoutThin:
		return impossibleThin(g, class, g.bytes(rows))
	case legs == 0:
		var free Extents
		for _, pv := range g.PVs {
			for _, r := range pv.Free {
				if pv.Allocatable {
					free += r.Count
				}
			}
		}
		if free < rows {
			return "too few extents"
		}
	default:
		need, disks := rows, 0
		if class.raid() {
			region := regionSize(g, class, rows*class.row())
			bits := int64(rows) * int64(g.ExtentSize) / int64(region)
			sectors := (8192 + (bits+7)/8 + 511) / 512
			perExtent := int64(g.ExtentSize / 512)
			need += Extents((sectors + perExtent - 1) / perExtent)
		}
		for _, pv := range g.PVs {
			if pv.Allocatable && slices.ContainsFunc(pv.Free, func(r Run) bool { return r.Count >= need }) {
				disks++
			}
		}
		if disks < legs {
			return "too few disks with such a run"
		}
	}
	return ""
}

func impossibleThin(g Group, class Class, size Bytes) string {
	p, err := poolOf(g, class)
	if err != nil {
		return err.Error()
	}
	promised := float64((size+p.chunk-1)/p.chunk*p.chunk) / float64(p.chunk)
	for _, lv := range g.LVs {
		if lv.Type == "thin" && lv.Pool == class.Pool {
			promised += float64((g.bytes(lv.Extents)+p.chunk-1)/p.chunk*p.chunk) / float64(p.chunk)
		}
	}
	most := p.data
	if p.ours {
		most += g.free()
		if !p.made {
			most -= p.fixed()
		}
	}
	if promised > float64(g.bytes(most)/p.chunk)*float64(class.Overprovision)/100 {
		return "promised too much"
	}
	return ""
}

// TestPlanKeepsApart: however many volumes are planned together, no extent is given twice, and no promise is broken.
func TestPlanKeepsApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyState.Draw(t, "state")
		var specs []Spec
		for i := range rapid.IntRange(1, 6).Draw(t, "volumes") {
			size := Bytes(rapid.IntRange(1, 100).Draw(t, "size")) * 256 * KiB
			specs = append(specs, Spec{Name: string(rune('a' + i)), Class: anyClass("@fast").Draw(t, "class"), Required: size})
		}
		ps, err := plan(s, testCluster, specs)
		if err != nil {
			return
		}
		var carvings []*carving
		made := s.clone()
		for i, p := range ps {
			checkCarving(t, made, p.carve, specs[i].Required)
			made.take(p.carve)
			carvings = append(carvings, p.carve)
		}
		if diff := cmp.Diff(made, s.reserve(carvings)); diff != "" {
			t.Fatalf("what is reserved is not what is made: %s", diff)
		}
	})
}

func checkCarving(t *rapid.T, s State, c *carving, size Bytes) {
	t.Helper()
	i := slices.IndexFunc(s.Groups, func(g Group) bool { return g.UUID == c.group.UUID })
	group := s.Groups[i]
	class := c.volume.Class
	if group.bytes(c.extents) < size || group.bytes(c.extents-class.row()) >= size || c.extents%class.row() != 0 {
		t.Fatalf("%d extents of %s in rows of %d for %d bytes", c.extents, group.ExtentSize, class.row(), size)
	}
	if class.Layout == LayoutThin {
		checkPoolPlan(t, group, c)
		return
	}
	total := checkFree(t, group, c.ranges)
	if class.legs() == 0 {
		if total != c.extents {
			t.Fatalf("%d extents planned, %d wanted", total, c.extents)
		}
		return
	}
	disks := map[string]bool{}
	for _, r := range c.ranges {
		disks[r.device] = true
		if n := r.last - r.first + 1; n != legExtents(group, class, c.extents) {
			t.Fatalf("a leg of %d extents", n)
		}
	}
	if len(disks) != class.legs() || len(c.ranges) != class.legs() {
		t.Fatalf("%d legs on %d disks: %+v", class.legs(), len(disks), c.ranges)
	}
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

// checkPoolPlan sees that the pool, grown as planned, covers what it promises then.
func checkPoolPlan(t *rapid.T, g Group, c *carving) {
	t.Helper()
	p, err := poolOf(g, c.volume.Class)
	if err != nil {
		t.Fatal(err)
	}
	data := p.data
	if grown := c.pool; grown != nil {
		fixed := Extents(0)
		if grown.home != nil {
			fixed = p.fixed()
		}
		if n := checkFree(t, g, append(slices.Clone(grown.home), grown.ranges...)); n != grown.data-data+fixed {
			t.Fatalf("%d extents for a pool that grows from %d to %d and needs %d beside it", n, data, grown.data, fixed)
		}
		data = grown.data
	}
	promised := p.promised + p.chunks(c.extents)
	if have := Extents(g.bytes(data)/p.chunk) * Extents(c.volume.Class.Overprovision) / 100; promised > have {
		t.Fatalf("%d chunks promised of %d", promised, have)
	}
}
