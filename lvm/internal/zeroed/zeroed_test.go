package zeroed

import (
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

// TestZeroedAfter: what stays known from one commit of a group to a later one.
func TestZeroedAfter(t *testing.T) {
	known := alloc.RunsByPV{"vga": {{Start: 0, Count: 10}, {Start: 20, Count: 10}}, "vgb": {{Start: 0, Count: 5}}}
	z := knowledge{seqno: 7, checksum: 77, runs: known}
	whole := fixture.TestGroup("vg", []lvm.Run{{Start: 0, Count: 100}}, []lvm.Run{{Start: 0, Count: 100}})
	at := func(seqno int64, change func(*lvm.Group)) lvm.Group {
		g := whole.Clone()
		g.Seqno, g.Checksum = seqno, uint32(11*seqno)
		change(&g)
		return g
	}
	same := func(*lvm.Group) {}
	for _, test := range []struct {
		name   string
		now    lvm.Group
		own    int64
		gained alloc.RunsByPV
		want   alloc.RunsByPV
	}{
		{"nothing happened", at(7, same), 0, nil, known},
		{"another text under the same seqno", at(7, func(g *lvm.Group) { g.Checksum = 1 }), 0, nil, nil},
		{"an own commit allocates extents", at(8, func(g *lvm.Group) { g.PVs[0].Free = []lvm.Run{{Start: 5, Count: 95}} }), 1, nil,
			alloc.RunsByPV{"vga": {{Start: 5, Count: 5}, {Start: 20, Count: 10}}, "vgb": {{Start: 0, Count: 5}}}},
		{"an own commit frees zeroed extents", at(8, same), 2, alloc.RunsByPV{"vga": {{Start: 10, Count: 10}}}, alloc.RunsByPV{"vga": {{Start: 0, Count: 30}}, "vgb": {{Start: 0, Count: 5}}}},
		{"it frees none", at(8, func(g *lvm.Group) { g.PVs[0].Free = []lvm.Run{{Start: 0, Count: 10}, {Start: 30, Count: 70}} }), 2, alloc.RunsByPV{"vga": {{Start: 10, Count: 10}}},
			alloc.RunsByPV{"vga": {{Start: 0, Count: 10}}, "vgb": {{Start: 0, Count: 5}}}},
		{"three own commits", at(10, same), 3, nil, known},
		{"one more than the own ones", at(10, same), 2, alloc.RunsByPV{"vga": {{Start: 10, Count: 10}}}, nil},
		{"another program's commit allocates extents and frees others", at(8, func(g *lvm.Group) { g.PVs[0].Free = []lvm.Run{{Start: 8, Count: 92}} }), 0, nil,
			alloc.RunsByPV{"vga": {{Start: 8, Count: 2}, {Start: 20, Count: 10}}, "vgb": {{Start: 0, Count: 5}}}},
		{"two commits of another program", at(9, same), 0, nil, nil},
		{"an older backup is restored", at(6, same), 0, nil, nil},
		{"a disk leaves", at(8, func(g *lvm.Group) { g.PVs = g.PVs[:1] }), 0, nil, alloc.RunsByPV{"vga": {{Start: 0, Count: 10}, {Start: 20, Count: 10}}}},
		{"a disk is missing", at(7, func(g *lvm.Group) { g.PVs[1].Missing = true }), 0, nil, alloc.RunsByPV{"vga": {{Start: 0, Count: 10}, {Start: 20, Count: 10}}}},
		{"a disk is unresponsive", at(7, func(g *lvm.Group) { g.PVs[1].Unresponsive = true }), 0, nil, alloc.RunsByPV{"vga": {{Start: 0, Count: 10}, {Start: 20, Count: 10}}}},
		{"an admin vouches", at(12, func(g *lvm.Group) { g.Tags = []string{"nodelvm.zeroed=12"} }), 0, nil, alloc.RunsByPV{"vga": {{Start: 0, Count: 100}}, "vgb": {{Start: 0, Count: 100}}}},
		{"an admin vouched for another commit", at(12, func(g *lvm.Group) { g.Tags = []string{"nodelvm.zeroed=11", "nodelvm.zeroed=13"} }), 0, nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := z.after(test.now, test.own, test.gained)
			if len(got.runs) == 0 {
				got.runs = nil
			}
			if diff := cmp.Diff(test.want, got.runs); diff != "" {
				t.Errorf("known zero extents (-want +got):\n%s", diff)
			}
			if got.seqno != test.now.Seqno || got.checksum != test.now.Checksum {
				t.Errorf("recorded for seqno %d, checksum %d", got.seqno, got.checksum)
			}
		})
	}
}

// TestZeroedFile: a file counts only for the commit at which it was written.
func TestZeroedFile(t *testing.T) {
	files := Files{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	g := fixture.TestGroup("vg", []lvm.Run{{Start: 0, Count: 100}}, []lvm.Run{{Start: 50, Count: 50}})
	g.Seqno, g.Checksum = 7, 77
	known := alloc.RunsByPV{"vga": {{Start: 0, Count: 10}}, "vgb": {{Start: 40, Count: 20}}, "gone": {{Start: 0, Count: 5}}}
	files.save(g.UUID, g.Name, knowledge{7, 77, known})
	if diff := cmp.Diff(alloc.RunsByPV{"vga": {{Start: 0, Count: 10}}, "vgb": {{Start: 50, Count: 10}}}, files.load(g).runs); diff != "" {
		t.Errorf("at the same commit (-want +got):\n%s", diff)
	}
	for name, change := range map[string]func(*lvm.Group){
		"one commit later": func(g *lvm.Group) { g.Seqno++ },
		"another text":     func(g *lvm.Group) { g.Checksum++ },
		"another group":    func(g *lvm.Group) { g.UUID = "other" },
	} {
		other := g.Clone()
		change(&other)
		if got := files.load(other); len(got.runs) > 0 || got.seqno != other.Seqno {
			t.Errorf("%s: %v counts as zero", name, got.runs)
		}
	}
	fixture.Must(t, os.WriteFile(files.path("other"), mustRead(t, files.path(g.UUID)), 0o600))
	other := g.Clone()
	other.UUID = "other"
	if got := files.load(other); len(got.runs) > 0 {
		t.Errorf("under another group's name: %v counts as zero", got.runs)
	}
	text := mustRead(t, files.path(g.UUID))
	for _, damaged := range []string{"", "{}", string(text[:len(text)/2]), strings.Replace(string(text), `"version":1`, `"version":2`, 1), "\x00\x00"} {
		fixture.Must(t, os.WriteFile(files.path(g.UUID), []byte(damaged), 0o600))
		if got := files.load(g); len(got.runs) > 0 {
			t.Errorf("from %q: %v counts as zero", damaged, got.runs)
		}
	}
	if got := (Files{}).load(g); len(got.runs) > 0 || got.seqno != 7 {
		t.Errorf("without a directory: %+v", got)
	}
}

func mustRead(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	fixture.Must(t, err)
	return text
}

// TestZeroedWatch: reads overlap each other and the driver's commands.
func TestZeroedWatch(t *testing.T) {
	free := []lvm.Run{{Start: 0, Count: 100}}
	at := func(seqno int64, free []lvm.Run) lvm.State {
		g := fixture.TestGroup("vg", free)
		g.Seqno, g.Checksum = seqno, uint32(seqno)
		return lvm.State{Groups: []lvm.Group{g}}
	}
	vouch := at(5, free)
	vouch.Groups[0].Tags = []string{"nodelvm.zeroed=5"}
	begin := func() *Watch {
		w := &Watch{}
		w.Begin(Files{}, func(time.Duration, func()) {})
		w.Read(w.Reading(), vouch)
		return w
	}
	known := func(w *Watch, s lvm.State) []lvm.Run {
		g := s.Groups[0]
		w.Show(&g)
		return g.PVs[0].Zeroed
	}
	want := func(what string, w *Watch, s lvm.State, want []lvm.Run) {
		t.Helper()
		if got := known(w, s); !slices.Equal(got, want) {
			t.Errorf("%s: %v is known to be zero, want %v", what, got, want)
		}
	}
	after := at(7, []lvm.Run{{Start: 10, Count: 90}})

	w := begin()
	w.Started("uuid-vg")
	w.Read(w.Reading(), at(6, []lvm.Run{{Start: 10, Count: 90}})) // between the two commits of the driver's command
	w.Read(w.Reading(), after)
	want("while a command runs", w, after, nil)
	early := w.Reading()
	w.Ended("uuid-vg", 2)
	w.Read(early, at(6, free)) // was read before the command ended
	w.Read(w.Reading(), after)
	want("after a command with two commits", w, after, []lvm.Run{{Start: 10, Count: 90}})
	w.Read(early, at(5, free)) // ended late
	want("after an old read", w, after, []lvm.Run{{Start: 10, Count: 90}})
	want("for an old read", w, at(6, free), nil)
	w.Read(w.Reading(), at(6, free)) // a backup was restored
	want("at a lower seqno", w, at(6, free), nil)

	w = begin()
	w.Started("uuid-vg")
	w.Ended("uuid-vg", 0) // it failed
	w.Read(w.Reading(), after)
	want("after a failed command and two commits", w, after, nil)

	w = begin()
	w.Gains("uuid-vg", alloc.RunsByPV{"vga": {{Start: 0, Count: 10}}})
	w.Started("uuid-vg")
	w.Ended("uuid-vg", 2)
	w.Read(w.Reading(), at(8, free)) // one commit is another program's
	want("after another program's commit among the driver's", w, at(8, free), nil)

	w = begin()
	w.Read(w.Reading(), lvm.State{})
	w.Read(w.Reading(), at(5, free))
	want("after its disks were missing", w, at(5, free), nil)
}

// TestZeroedRangesOfEachLayout: zeroes written to a volume's stretches reach all the requested extents, in each layout.
func TestZeroedRangesOfEachLayout(t *testing.T) {
	g := fixture.TestGroup("vg", nil, nil, nil)
	images := func(n lvm.Extents) {
		for i, name := range []string{"v_rimage_0", "v_rimage_1", "v_rimage_2"} {
			g.LVs = append(g.LVs, lvm.LV{Name: name, Extents: n, Segments: []lvm.Segment{{Extents: n, Type: "linear", Areas: []lvm.Area{{PV: g.PVs[i].UUID, Start: 11}}}}})
		}
	}
	images(8)
	legs := []lvm.Area{{LV: "v_rimage_0"}, {LV: "v_rimage_1"}, {LV: "v_rimage_2"}}
	metadata := []lvm.Area{{LV: "v_rmeta_0"}, {LV: "v_rmeta_1"}, {LV: "v_rmeta_2"}}
	linear := lvm.LV{Extents: 10, Segments: []lvm.Segment{
		{Start: 0, Extents: 4, Type: "linear", Areas: []lvm.Area{{PV: "vga", Start: 50}}},
		{Start: 4, Extents: 6, Type: "linear", Areas: []lvm.Area{{PV: "vgb", Start: 0}}},
	}}
	for _, test := range []struct {
		name string
		lv   lvm.LV
		runs alloc.RunsByPV
		want []lvm.Run
	}{
		{"linear", linear, alloc.RunsByPV{"vga": {{Start: 52, Count: 10}}, "vgb": {{Start: 0, Count: 1}, {Start: 3, Count: 1}}}, []lvm.Run{{Start: 2, Count: 3}, {Start: 7, Count: 1}}},
		{"linear, elsewhere", linear, alloc.RunsByPV{"vga": {{Start: 0, Count: 50}, {Start: 54, Count: 9}}, "vgc": {{Start: 0, Count: 99}}}, nil},
		{"striped", lvm.LV{Extents: 6, Segments: []lvm.Segment{{Extents: 6, Type: "striped", Areas: []lvm.Area{{PV: "vga", Start: 5}, {PV: "vgb", Start: 7}}}}},
			alloc.RunsByPV{"vgb": {{Start: 8, Count: 1}}}, []lvm.Run{{Start: 2, Count: 2}}},
		{"raid1", lvm.LV{Extents: 8, Segments: []lvm.Segment{{Extents: 8, Type: "raid1", Areas: legs, Metadata: metadata}}}, alloc.RunsByPV{"vgc": {{Start: 12, Count: 2}}}, []lvm.Run{{Start: 1, Count: 2}}},
		{"raid5", lvm.LV{Extents: 16, Segments: []lvm.Segment{{Extents: 16, Type: "raid5_ls", Areas: legs, Metadata: metadata}}},
			alloc.RunsByPV{"vga": {{Start: 10, Count: 2}}, "vgb": {{Start: 18, Count: 9}}}, []lvm.Run{{Start: 0, Count: 2}, {Start: 14, Count: 2}}},
		{"in the middle of a reshape", lvm.LV{Extents: 14, Segments: []lvm.Segment{{Extents: 14, Type: "raid5_ls", Areas: legs, Metadata: metadata}}},
			alloc.RunsByPV{"vga": {{Start: 11, Count: 1}}}, []lvm.Run{{Start: 0, Count: 14}}},
		{"a cache", lvm.LV{Extents: 3, Segments: []lvm.Segment{{Extents: 3, Type: "cache"}}}, nil, []lvm.Run{{Start: 0, Count: 3}}},
	} {
		if got := alloc.RangesOn(g, test.lv, test.runs); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
	if content := alloc.ContentOf(g, lvm.LV{Extents: 3, Segments: []lvm.Segment{{Extents: 3, Type: "writecache"}}}); content != nil {
		t.Errorf("the content of a cached volume lies on %v", content)
	}
}

// TestRunSetOperations: the algebra of runs is that of sets.
func TestRunSetOperations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) ([]lvm.Run, map[lvm.Extents]bool) {
			set := map[lvm.Extents]bool{}
			var runs []lvm.Run
			for range rapid.IntRange(0, 5).Draw(t, name) {
				r := lvm.Run{Start: lvm.Extents(rapid.IntRange(0, 30).Draw(t, "start")), Count: lvm.Extents(rapid.IntRange(0, 9).Draw(t, "count"))}
				runs = append(runs, r)
				for e := r.Start; e < r.End(); e++ {
					set[e] = true
				}
			}
			return alloc.Union(runs), set
		}
		a, inA := draw("a")
		b, inB := draw("b")
		for name, test := range map[string]struct {
			got  []lvm.Run
			want func(e lvm.Extents) bool
		}{
			"union":   {alloc.Union(a, b), func(e lvm.Extents) bool { return inA[e] || inB[e] }},
			"common":  {alloc.Common(a, b), func(e lvm.Extents) bool { return inA[e] && inB[e] }},
			"lacking": {alloc.Lacking(a, b), func(e lvm.Extents) bool { return inA[e] && !inB[e] }},
		} {
			in, last := map[lvm.Extents]bool{}, lvm.Extents(-1)
			for _, r := range test.got {
				if r.Count < 1 || r.Start <= last && name != "lacking" {
					t.Fatalf("%s of %v and %v: %v", name, a, b, test.got)
				}
				last = r.End()
				for e := r.Start; e < r.End(); e++ {
					in[e] = true
				}
			}
			for e := range lvm.Extents(50) {
				if in[e] != test.want(e) {
					t.Fatalf("%s of %v and %v: %v", name, a, b, test.got)
				}
			}
		}
	})
}

// TestAllocateOnZeroedExtents: alloc places a raw block volume on extents that are known to be zero, if possible; all other volumes it
// places as before.
func TestAllocateOnZeroedExtents(t *testing.T) {
	g := fixture.TestGroup("vg", []lvm.Run{{Start: 0, Count: 20}}, []lvm.Run{{Start: 0, Count: 30}})
	g.PVs[1].Zeroed = []lvm.Run{{Start: 10, Count: 10}}
	s := lvm.State{Groups: []lvm.Group{g}}
	for _, test := range []struct {
		block   bool
		class   lvm.Class
		extents lvm.Extents
		want    string
		state   lvm.VolumeState
	}{
		{false, lvm.Class{}, 4, "/dev/vga:0-3", lvm.StateCreating},
		{true, lvm.Class{}, 4, "/dev/vgb:10-13", lvm.StateCreating},
		{true, lvm.Class{}, 10, "/dev/vgb:10-19", lvm.StateCreating},
		{true, lvm.Class{}, 11, "/dev/vga:0-10", lvm.StateZeroing},
		{true, lvm.Class{Layout: lvm.LayoutRAID1}, 4, "/dev/vgb:0-4 /dev/vga:0-4", lvm.StateZeroing},
		{true, lvm.Class{Layout: lvm.LayoutStriped}, 8, "/dev/vgb:0-3 /dev/vga:0-3", lvm.StateZeroing},
	} {
		spec := fixture.TestSpec("a", "vg", lvm.Bytes(test.extents)*4*lvm.MiB)
		spec.Class, spec.Block = lvm.Class{Group: "vg", Layout: test.class.Layout}, test.block
		c := fixture.Planned(t, s, spec)[0].Create
		if got := strings.Join(lvmcmd.RangeArgs(c.Ranges), " "); got != test.want || c.Volume.State != test.state {
			t.Errorf("block %t, %s, %d extents: %s on %s, want %s on %s", test.block, test.class.Layout, test.extents, c.Volume.State, got, test.state, test.want)
		}
	}
}

// TestBlockIsNoFileSystem: a request for a raw block volume does not get a volume that was created for a file system.
func TestBlockIsNoFileSystem(t *testing.T) {
	s := lvm.State{Groups: []lvm.Group{fixture.Holding(fixture.TestGroup("vg", []lvm.Run{{Start: 0, Count: 100}}), "a", 4, fixture.Unchanged)}}
	spec := fixture.TestSpec("a", "vg", 16*lvm.MiB)
	if ps, err := alloc.Plan(s, fixture.TestCluster, []lvm.Spec{spec}); err != nil || ps[0].Ready == nil {
		t.Errorf("the same volume again: %+v, %v", ps, err)
	}
	spec.Block = true
	if _, err := alloc.Plan(s, fixture.TestCluster, []lvm.Spec{spec}); lvm.KindOf(err) != lvm.KindExists || !strings.Contains(err.Error(), "for a file system") {
		t.Errorf("a raw block volume of its name: %v", err)
	}
	s.Groups[0] = fixture.Holding(fixture.TestGroup("vg", []lvm.Run{{Start: 0, Count: 100}}), "a", 4, func(v *lvm.Volume) { v.Block = true })
	for _, spec.Block = range []bool{true, false} {
		if ps, err := alloc.Plan(s, fixture.TestCluster, []lvm.Spec{spec}); err != nil || ps[0].Ready == nil || !ps[0].Ready.Block {
			t.Errorf("a raw block volume that is there: %+v, %v", ps, err)
		}
	}
}
