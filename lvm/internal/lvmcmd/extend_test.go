package lvmcmd

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// TestExtendSteps: the commands that extend a volume of each layout. Extents are of 4 MiB.
func TestExtendSteps(t *testing.T) {
	const x = 4 * lvm.MiB
	for _, test := range []struct {
		class     lvm.Class
		from, to  lvm.Bytes
		want      string
		block     string // a disk whose extents after the volume are used
		wantError string
	}{
		{class: lvm.Class{}, from: 10 * x, to: 15*x - 1, want: "lvextend --alloc normal -l 15 -- vg/NAME /dev/vge:10-14"},
		{class: lvm.Class{}, from: 10 * x, to: 15 * x, block: "/dev/vge", want: "lvextend --alloc normal -l 15 -- vg/NAME /dev/vge:90-94"},
		{class: lvm.Class{}, from: 10 * x, to: 10 * x, want: ""},
		{class: lvm.Class{}, from: 10 * x, to: 1, want: ""},
		{class: lvm.Class{}, from: 10 * x, to: 501 * x, wantError: "at most 2000 MiB"},
		{class: lvm.Class{Layout: lvm.LayoutStriped}, from: 10 * x, to: 11 * x, want: "lvextend --alloc normal -l 12 -- vg/NAME /dev/vgc:0-0 /dev/vgd:0-0"},
		{class: lvm.Class{Layout: lvm.LayoutRAID1}, from: 10 * x, to: 11 * x, want: "lvextend --alloc normal -l 11 -- vg/NAME /dev/vga:11-11 /dev/vgb:11-11"},
		{class: lvm.Class{Layout: lvm.LayoutRAID1}, from: 10 * x, to: 99 * x, want: "lvextend --alloc normal -l 99 -- vg/NAME /dev/vga:11-99 /dev/vgb:11-99"},
		{class: lvm.Class{Layout: lvm.LayoutRAID1}, from: 10 * x, to: 100 * x, wantError: "it can have at most 396 MiB: the largest contiguous free extent range on the disks of its legs is 356 MiB"},
		{class: lvm.Class{Layout: lvm.LayoutRAID1}, from: 10 * x, to: 14 * x, block: "/dev/vgb", want: "lvextend --alloc normal -l 14 -- vg/NAME /dev/vga:11-14 /dev/vgb:90-93"},
		{class: lvm.Class{Layout: lvm.LayoutRAID6}, from: 9 * x, to: 10 * x, want: "lvextend --alloc normal -l 12 -- vg/NAME /dev/vga:4-4 /dev/vgb:4-4 /dev/vgc:4-4 /dev/vgd:4-4 /dev/vge:4-4"},
		{class: lvm.Class{Layout: lvm.LayoutThin, Overprovision: 200}, from: 10 * x, to: 400 * x, want: "lvextend --alloc normal -l 400 -- vg/NAME"},
		{class: lvm.Class{Layout: lvm.LayoutThin}, from: 10 * x, to: 400 * x,
			want: "lvextend --alloc normal -l 496 -- vg/nodelvm-thin /dev/vgc:0-99 /dev/vgd:0-99 /dev/vge:60-99, lvextend --alloc normal -l 400 -- vg/NAME"},
		{class: lvm.Class{Layout: lvm.LayoutThin}, from: 10 * x, to: 497 * x, wantError: "at most 1984 MiB for this volume"},
	} {
		s := fixture.FiveDisks()
		v := fixture.NewVolume(t, s, fixture.SpecIn("a", test.class, test.from))
		for i, pv := range s.Groups[0].PVs {
			if pv.Device == test.block {
				s.Groups[0].PVs[i].Free = []lvm.Run{{Start: 90, Count: 10}}
			}
		}
		e, err := alloc.PlanExtend(s, v, alloc.ExtendRequest{Required: test.to, Limit: 0})
		if test.wantError != "" {
			if lvm.KindOf(err) != lvm.KindOutOfRange || !strings.Contains(err.Error(), test.wantError) {
				t.Errorf("%s to %s: %v; want it to say %q", test.class.Layout, test.to, err, test.wantError)
			}
			continue
		}
		got := strings.ReplaceAll(strings.Join(argvOf(t, stepsOf(t, e), err), ", "), v.ID.LV, "NAME")
		if !strings.Contains(got, test.want) || (got == "") != (test.want == "") || e.Volume.Size < test.to {
			t.Errorf("%s of %s to %s: %s (then %s)\n%s, want\n%s", test.class.Layout, test.from, test.to, e.Volume.Size, v.Size, got, test.want)
		}
	}
}

// TestExtendRefusals: a volume that cannot be extended does not change, and the error says why.
func TestExtendRefusals(t *testing.T) {
	const x = 4 * lvm.MiB
	for what, test := range map[string]struct {
		class           lvm.Class
		required, limit lvm.Bytes
		change          func(g *lvm.Group, lv *lvm.LV)
		kind            lvm.Kind
		words           string
	}{
		"negative":          {required: -1, kind: lvm.KindOutOfRange, words: "negative"},
		"limit below":       {required: 12 * x, limit: 11 * x, kind: lvm.KindOutOfRange, words: "more than the limit"},
		"limit inside":      {class: lvm.Class{Layout: lvm.LayoutStriped}, required: 11 * x, limit: 11 * x, kind: lvm.KindOutOfRange, words: "exceeds the limit"},
		"smaller limit":     {required: 0, limit: 9 * x, kind: lvm.KindOutOfRange, words: "never shrink"},
		"exported":          {required: 11 * x, change: func(g *lvm.Group, lv *lvm.LV) { g.Problem = "it is exported" }, kind: lvm.KindConflict, words: "exported"},
		"a disk is missing": {required: 11 * x, change: func(g *lvm.Group, lv *lvm.LV) { g.PVs[4].Missing = true }, kind: lvm.KindBusy, words: "is missing: reconnect its disk"},
		"a silent disk": {required: 11 * x, change: func(g *lvm.Group, lv *lvm.LV) {
			g.PVs[4].Unresponsive, g.Problem = true, lvm.DescribeUnresponsive("/dev/vge")
		}, kind: lvm.KindBusy, words: "is unresponsive"},
		"one byte more":   {required: 10*x + 1, change: func(g *lvm.Group, lv *lvm.LV) { g.Problem = "it is exported" }, kind: lvm.KindConflict, words: "from 41943040 bytes to 41943041 bytes"},
		"snapshots of it": {required: 11 * x, change: func(g *lvm.Group, lv *lvm.LV) { lv.UsedBy = []string{"snap"} }, kind: lvm.KindInUse, words: "snap"},
		"converted":       {required: 11 * x, change: func(g *lvm.Group, lv *lvm.LV) { lv.Segments[0].Type = "raid1" }, kind: lvm.KindOutOfRange, words: "lvextend -L+SIZE vg/"},
		"more legs": {class: lvm.Class{Layout: lvm.LayoutRAID1}, required: 11 * x, change: func(g *lvm.Group, lv *lvm.LV) {
			lv.Segments[0].Areas = append(lv.Segments[0].Areas, lvm.Area{LV: "third"})
		}, kind: lvm.KindOutOfRange, words: "lvextend -L+SIZE vg/"},
		"legs together": {class: lvm.Class{Layout: lvm.LayoutRAID1}, required: 11 * x, change: func(g *lvm.Group, lv *lvm.LV) { lv.Segments[0].Areas[1] = lv.Segments[0].Areas[0] }, kind: lvm.KindOutOfRange, words: "shares its disk"},
		"small regions": {class: lvm.Class{Layout: lvm.LayoutRAID1}, required: 11 * x, change: func(g *lvm.Group, lv *lvm.LV) { lv.Segments[0].RegionSize = 4 }, kind: lvm.KindOutOfRange, words: "at most 8 MiB"},
		"a full area":   {required: 11 * x, change: func(g *lvm.Group, lv *lvm.LV) { g.MDAFree = 8 * lvm.KiB }, kind: lvm.KindOutOfRange, words: "move all extents to them (pvmove, vgreduce)"},
		"renamed":       {required: 11 * x, change: func(g *lvm.Group, lv *lvm.LV) { lv.Name = "other" }, kind: lvm.KindConflict, words: "lvrename vg other v-"},
		"gone":          {required: 11 * x, change: func(g *lvm.Group, lv *lvm.LV) { lv.Name, lv.Managed = "other", nil }, kind: lvm.KindNotFound, words: "has no volume"},
	} {
		s := fixture.FiveDisks()
		v := fixture.NewVolume(t, s, fixture.SpecIn("a", test.class, 10*x))
		if test.change != nil {
			g := &s.Groups[0]
			test.change(g, &g.LVs[slices.IndexFunc(g.LVs, func(lv lvm.LV) bool { return lv.Name == v.ID.LV })])
		}
		if e, err := alloc.PlanExtend(s, v, alloc.ExtendRequest{Required: test.required, Limit: test.limit}); err == nil || lvm.KindOf(err) != test.kind || !strings.Contains(err.Error(), test.words) {
			t.Errorf("%s: %+v, kind %d, %v", what, e, lvm.KindOf(err), err)
		}
	}
}

// TestExtendRAIDMetadata: where more regions need more metadata, the plan includes those extents on each leg.
func TestExtendRAIDMetadata(t *testing.T) {
	s := fixture.FiveDisks()
	g := &s.Groups[0]
	g.ExtentSize = 16 * lvm.KiB
	for i := range g.PVs {
		g.PVs[i].Extents, g.PVs[i].Free = 1<<22, []lvm.Run{{Start: 0, Count: 1 << 22}}
	}
	v := fixture.NewVolume(t, s, fixture.SpecIn("a", lvm.Class{Layout: lvm.LayoutRAID1}, 16*lvm.KiB))
	if n := alloc.RAIDMetadata(*g, 1, 16*lvm.KiB); n != 1 {
		t.Fatalf("%d extents of metadata", n)
	}
	e, err := alloc.PlanExtend(s, v, alloc.ExtendRequest{Required: 2 * lvm.GiB, Limit: 0}) // 2^17 regions: 8 + 16 KiB, 2 extents
	want := []string{"lvextend --alloc normal -l 131072 -- vg/" + v.ID.LV + " /dev/vga:2-131073 /dev/vgb:2-131073"}
	if diff := cmp.Diff(want, argvOf(t, stepsOf(t, e), err)); diff != "" {
		t.Error(diff)
	}
}

// TestExtendRefusalNamesTheMaximum: a refusal says how far a volume can be extended, and that size is accepted, on free extents.
func TestExtendRefusalNamesTheMaximum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := fixture.AnyState.Draw(t, "state")
		for _, g := range s.Groups {
			for lv, v := range g.Volumes() {
				if lvm.CheckWritable(s, g) != nil {
					continue
				}
				v.State = lvm.StateReady
				most := lv.Extents
				for step := lvm.Extents(1 << 20); step > 0; step /= 2 { // the largest accepted size, by bisection
					if e, err := alloc.PlanExtend(s, v, alloc.ExtendRequest{Required: v.Class.DataSize(g.Bytes(most + step*v.Class.StripeExtents())), Limit: 0}); err == nil {
						most += step * v.Class.StripeExtents()
						checkSteps(t, g, e)
					} else if kind := lvm.KindOf(err); kind != lvm.KindOutOfRange {
						t.Fatalf("%s: kind %d, %v", lv.Name, kind, err)
					}
				}
				if v.Class.Layout != lvm.LayoutLinear || most == lv.Extents {
					continue
				}
				free := lvm.Extents(0) // on disks with blocks of the volume's size
				for _, pv := range g.PVs {
					if pv.BlockSize == slices.Max(g.BlockSizesOf(lv)) {
						free += pv.AllocatableExtents()
					}
				}
				if most != lv.Extents+free {
					t.Fatalf("a linear volume of %d extents can have %d, with %d free", lv.Extents, most, free)
				}
			}
		}
	})
}

// stepsOf are the commands of a plan; the test fails if the plan did.
func stepsOf(t interface{ Fatal(args ...any) }, x alloc.Extension) []Step {
	steps, err := ExtendSteps(x)
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

// checkSteps checks that each lvextend names free extents only, each one once.
func checkSteps(t *rapid.T, g lvm.Group, e alloc.Extension) {
	t.Helper()
	var all []alloc.ExtentRange
	for _, s := range stepsOf(t, e) {
		all = append(all, rangesIn(t, s.Argv)...)
	}
	fixture.CheckFree(t, g, all)
}

// FuzzTarget: for any names, a command line names one volume of one group, and contains no additional option, tag or volume.
func FuzzTarget(f *testing.F) {
	for _, seed := range []string{"vg", "@tag", "-y", "vg/lv", "", "a b", "--config=x", "\x00", "vg\n"} {
		f.Add(seed, "lv")
		f.Add("vg", seed)
	}
	f.Fuzz(func(t *testing.T, group, lv string) {
		target, err := TargetOf(lvm.VGName(group), lv)
		if err != nil {
			return
		}
		g := fixture.TestGroup(group, []lvm.Run{{Start: 0, Count: 10}})
		for _, argv := range [][]string{
			RemoveArgs(target, g, "U", lvm.StateDeleting), extendArgs(target, g, 5, nil), ActivateArgs(g, target), StateArgs(target, g, "U", lvm.StateCreating, lvm.StateReady),
		} {
			i := slices.Index(argv, "--")
			if i < 0 || len(argv) != i+2 || argv[i+1] != group+"/"+lv || strings.Count(argv[i+1], "/") != 1 || strings.HasPrefix(argv[i+1], "-") || strings.HasPrefix(argv[i+1], "@") {
				t.Errorf("%q", argv)
			}
		}
	})
}
