package lvm

import (
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestZeroedAfter: what stays known from one commit of a group to a later one.
func TestZeroedAfter(t *testing.T) {
	known := runsByPV{"vga": {{0, 10}, {20, 10}}, "vgb": {{0, 5}}}
	z := zeroed{seqno: 7, checksum: 77, runs: known}
	whole := testGroup("vg", []Run{{0, 100}}, []Run{{0, 100}})
	at := func(seqno int64, change func(*Group)) Group {
		g := whole.clone()
		g.Seqno, g.Checksum = seqno, uint32(11*seqno)
		change(&g)
		return g
	}
	same := func(*Group) {}
	for _, test := range []struct {
		name   string
		now    Group
		own    int64
		gained runsByPV
		want   runsByPV
	}{
		{"nothing happened", at(7, same), 0, nil, known},
		{"another text under the same seqno", at(7, func(g *Group) { g.Checksum = 1 }), 0, nil, nil},
		{"an own commit takes extents", at(8, func(g *Group) { g.PVs[0].Free = []Run{{5, 95}} }), 1, nil,
			runsByPV{"vga": {{5, 5}, {20, 10}}, "vgb": {{0, 5}}}},
		{"an own commit gives zeroed ones back", at(8, same), 2, runsByPV{"vga": {{10, 10}}}, runsByPV{"vga": {{0, 30}}, "vgb": {{0, 5}}}},
		{"it did not, after all", at(8, func(g *Group) { g.PVs[0].Free = []Run{{0, 10}, {30, 70}} }), 2, runsByPV{"vga": {{10, 10}}},
			runsByPV{"vga": {{0, 10}}, "vgb": {{0, 5}}}},
		{"three own commits", at(10, same), 3, nil, known},
		{"one more than the own ones", at(10, same), 2, runsByPV{"vga": {{10, 10}}}, nil},
		{"a foreign commit takes extents, and gives others back", at(8, func(g *Group) { g.PVs[0].Free = []Run{{8, 92}} }), 0, nil,
			runsByPV{"vga": {{8, 2}, {20, 10}}, "vgb": {{0, 5}}}},
		{"two foreign commits", at(9, same), 0, nil, nil},
		{"an older backup is restored", at(6, same), 0, nil, nil},
		{"a disk leaves", at(8, func(g *Group) { g.PVs = g.PVs[:1] }), 0, nil, runsByPV{"vga": {{0, 10}, {20, 10}}}},
		{"a disk is away", at(7, func(g *Group) { g.PVs[1].Missing = true }), 0, nil, runsByPV{"vga": {{0, 10}, {20, 10}}}},
		{"a disk does not answer", at(7, func(g *Group) { g.PVs[1].Silent = true }), 0, nil, runsByPV{"vga": {{0, 10}, {20, 10}}}},
		{"an admin vouches", at(12, func(g *Group) { g.Tags = []string{"nodelvm.zeroed=12"} }), 0, nil, runsByPV{"vga": {{0, 100}}, "vgb": {{0, 100}}}},
		{"an admin vouched for another commit", at(12, func(g *Group) { g.Tags = []string{"nodelvm.zeroed=11", "nodelvm.zeroed=13"} }), 0, nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := z.after(test.now, test.own, test.gained)
			if len(got.runs) == 0 {
				got.runs = nil
			}
			if diff := cmp.Diff(test.want, got.runs); diff != "" {
				t.Errorf("known afterwards (-want +got):\n%s", diff)
			}
			if got.seqno != test.now.Seqno || got.checksum != test.now.Checksum {
				t.Errorf("it is known of seqno %d, checksum %d", got.seqno, got.checksum)
			}
		})
	}
}

// TestZeroedFile: a file counts only for the very commit that it was written at.
func TestZeroedFile(t *testing.T) {
	files := zeroedFiles{dir: t.TempDir(), log: slog.New(slog.DiscardHandler)}
	g := testGroup("vg", []Run{{0, 100}}, []Run{{50, 50}})
	g.Seqno, g.Checksum = 7, 77
	known := runsByPV{"vga": {{0, 10}}, "vgb": {{40, 20}}, "gone": {{0, 5}}}
	files.save(g.UUID, g.Name, zeroed{7, 77, known})
	if diff := cmp.Diff(runsByPV{"vga": {{0, 10}}, "vgb": {{50, 10}}}, files.load(g).runs); diff != "" {
		t.Errorf("at the same commit (-want +got):\n%s", diff)
	}
	for name, change := range map[string]func(*Group){
		"one commit later":           func(g *Group) { g.Seqno++ },
		"another text":               func(g *Group) { g.Checksum++ },
		"only LVM's report was read": func(g *Group) { g.Checksum = 0 },
		"another group":              func(g *Group) { g.UUID = "other" },
	} {
		other := g.clone()
		change(&other)
		if got := files.load(other); len(got.runs) > 0 || got.seqno != other.Seqno {
			t.Errorf("%s: %v is taken for zero", name, got.runs)
		}
	}
	must(t, os.WriteFile(files.path("other"), mustRead(t, files.path(g.UUID)), 0o600))
	other := g.clone()
	other.UUID = "other"
	if got := files.load(other); len(got.runs) > 0 {
		t.Errorf("under another group's name: %v is taken for zero", got.runs)
	}
	text := mustRead(t, files.path(g.UUID))
	for _, damaged := range []string{"", "{}", string(text[:len(text)/2]), strings.Replace(string(text), `"version":1`, `"version":2`, 1), "\x00\x00"} {
		must(t, os.WriteFile(files.path(g.UUID), []byte(damaged), 0o600))
		if got := files.load(g); len(got.runs) > 0 {
			t.Errorf("from %q %v is taken for zero", damaged, got.runs)
		}
	}
	if got := (zeroedFiles{}).load(g); len(got.runs) > 0 || got.seqno != 7 {
		t.Errorf("without a folder: %+v", got)
	}
}

func mustRead(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return text
}

// TestZeroedWatch: readings overlap each other and the driver's commands.
func TestZeroedWatch(t *testing.T) {
	free := []Run{{0, 100}}
	at := func(seqno int64, free []Run) State {
		g := testGroup("vg", free)
		g.Seqno, g.Checksum = seqno, uint32(seqno)
		return State{Groups: []Group{g}}
	}
	vouch := at(5, free)
	vouch.Groups[0].Tags = []string{"nodelvm.zeroed=5"}
	begin := func() *zeroedWatch {
		w := &zeroedWatch{}
		w.begin(zeroedFiles{}, func(time.Duration, func()) {})
		w.read(w.reading(), vouch)
		return w
	}
	known := func(w *zeroedWatch, s State) []Run {
		g := s.Groups[0]
		w.show(&g)
		return g.PVs[0].Zeroed
	}
	want := func(what string, w *zeroedWatch, s State, want []Run) {
		t.Helper()
		if got := known(w, s); !slices.Equal(got, want) {
			t.Errorf("%s: %v is known to be zero, want %v", what, got, want)
		}
	}
	after := at(7, []Run{{10, 90}})

	w := begin()
	w.started("uuid-vg")
	w.read(w.reading(), at(6, []Run{{10, 90}})) // between the two commits of our command
	w.read(w.reading(), after)
	want("while a command runs", w, after, nil)
	early := w.reading()
	w.ended("uuid-vg", 2)
	w.read(early, at(6, free)) // was read before the command ended
	w.read(w.reading(), after)
	want("after a command with two commits", w, after, []Run{{10, 90}})
	w.read(early, at(5, free)) // ended late
	want("after an old reading", w, after, []Run{{10, 90}})
	want("for an old reading", w, at(6, free), nil)
	w.read(w.reading(), at(6, free)) // a backup was restored
	want("at a lower seqno", w, at(6, free), nil)

	w = begin()
	w.started("uuid-vg")
	w.ended("uuid-vg", 0) // it failed
	w.read(w.reading(), after)
	want("after a failed command and two commits", w, after, nil)

	w = begin()
	w.gains("uuid-vg", runsByPV{"vga": {{0, 10}}})
	w.started("uuid-vg")
	w.ended("uuid-vg", 2)
	w.read(w.reading(), at(8, free)) // one is somebody else's
	want("after a foreign commit among ours", w, at(8, free), nil)

	w = begin()
	w.read(w.reading(), State{})
	w.read(w.reading(), at(5, free))
	want("after its disks were away", w, at(5, free), nil)
}

// TestPieces: zeroes written to a volume's stretches reach all extents that are asked for, whatever the layout.
func TestPieces(t *testing.T) {
	g := testGroup("vg", nil, nil, nil)
	images := func(n Extents) {
		for i, name := range []string{"v_rimage_0", "v_rimage_1", "v_rimage_2"} {
			g.LVs = append(g.LVs, LV{Name: name, Extents: n, Segments: []Segment{{Extents: n, Type: "linear", Areas: []Area{{PV: g.PVs[i].UUID, Start: 11}}}}})
		}
	}
	images(8)
	legs := []Area{{LV: "v_rimage_0"}, {LV: "v_rimage_1"}, {LV: "v_rimage_2"}}
	metadata := []Area{{LV: "v_rmeta_0"}, {LV: "v_rmeta_1"}, {LV: "v_rmeta_2"}}
	linear := LV{Extents: 10, Segments: []Segment{
		{Start: 0, Extents: 4, Type: "linear", Areas: []Area{{PV: "vga", Start: 50}}},
		{Start: 4, Extents: 6, Type: "linear", Areas: []Area{{PV: "vgb", Start: 0}}},
	}}
	for _, test := range []struct {
		name string
		lv   LV
		runs runsByPV
		want []Run
	}{
		{"linear", linear, runsByPV{"vga": {{52, 10}}, "vgb": {{0, 1}, {3, 1}}}, []Run{{2, 3}, {7, 1}}},
		{"linear, elsewhere", linear, runsByPV{"vga": {{0, 50}, {54, 9}}, "vgc": {{0, 99}}}, nil},
		{"striped", LV{Extents: 6, Segments: []Segment{{Extents: 6, Type: "striped", Areas: []Area{{PV: "vga", Start: 5}, {PV: "vgb", Start: 7}}}}},
			runsByPV{"vgb": {{8, 1}}}, []Run{{2, 2}}},
		{"raid1", LV{Extents: 8, Segments: []Segment{{Extents: 8, Type: "raid1", Areas: legs, Metadata: metadata}}}, runsByPV{"vgc": {{12, 2}}}, []Run{{1, 2}}},
		{"raid5", LV{Extents: 16, Segments: []Segment{{Extents: 16, Type: "raid5_ls", Areas: legs, Metadata: metadata}}},
			runsByPV{"vga": {{10, 2}}, "vgb": {{18, 9}}}, []Run{{0, 2}, {14, 2}}},
		{"in the middle of a reshape", LV{Extents: 14, Segments: []Segment{{Extents: 14, Type: "raid5_ls", Areas: legs, Metadata: metadata}}},
			runsByPV{"vga": {{11, 1}}}, []Run{{0, 14}}},
		{"a cache", LV{Extents: 3, Segments: []Segment{{Extents: 3, Type: "cache"}}}, nil, []Run{{0, 3}}},
	} {
		if got := stretchesOn(g, test.lv, test.runs); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
	if content := contentOf(g, LV{Extents: 3, Segments: []Segment{{Extents: 3, Type: "writecache"}}}); content != nil {
		t.Errorf("the content of a cached volume lies on %v", content)
	}
}

// TestRuns: the algebra of runs is that of sets.
func TestRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) ([]Run, map[Extents]bool) {
			set := map[Extents]bool{}
			var runs []Run
			for range rapid.IntRange(0, 5).Draw(t, name) {
				r := Run{Extents(rapid.IntRange(0, 30).Draw(t, "start")), Extents(rapid.IntRange(0, 9).Draw(t, "count"))}
				runs = append(runs, r)
				for e := r.Start; e < r.end(); e++ {
					set[e] = true
				}
			}
			return union(runs), set
		}
		a, inA := draw("a")
		b, inB := draw("b")
		for name, test := range map[string]struct {
			got  []Run
			want func(e Extents) bool
		}{
			"union":   {union(a, b), func(e Extents) bool { return inA[e] || inB[e] }},
			"common":  {common(a, b), func(e Extents) bool { return inA[e] && inB[e] }},
			"lacking": {lacking(a, b), func(e Extents) bool { return inA[e] && !inB[e] }},
		} {
			in, last := map[Extents]bool{}, Extents(-1)
			for _, r := range test.got {
				if r.Count < 1 || r.Start <= last && name != "lacking" {
					t.Fatalf("%s of %v and %v: %v", name, a, b, test.got)
				}
				last = r.end()
				for e := r.Start; e < r.end(); e++ {
					in[e] = true
				}
			}
			for e := range Extents(50) {
				if in[e] != test.want(e) {
					t.Fatalf("%s of %v and %v: %v", name, a, b, test.got)
				}
			}
		}
	})
}

// TestCarveZeroed: a raw block volume is placed on extents that are known to be zero, if it can be; all others where they
// were placed before.
func TestCarveZeroed(t *testing.T) {
	g := testGroup("vg", []Run{{0, 20}}, []Run{{0, 30}})
	g.PVs[1].Zeroed = []Run{{10, 10}}
	s := State{Groups: []Group{g}}
	for _, test := range []struct {
		block   bool
		class   Class
		extents Extents
		want    string
		state   VolumeState
	}{
		{false, Class{}, 4, "/dev/vga:0-3", StateCreating},
		{true, Class{}, 4, "/dev/vgb:10-13", StateCreating},
		{true, Class{}, 10, "/dev/vgb:10-19", StateCreating},
		{true, Class{}, 11, "/dev/vga:0-10", StateZeroing},
		{true, Class{Layout: LayoutRAID1}, 4, "/dev/vgb:0-4 /dev/vga:0-4", StateZeroing},
		{true, Class{Layout: LayoutStriped}, 8, "/dev/vgb:0-3 /dev/vga:0-3", StateZeroing},
	} {
		spec := testSpec("a", "vg", Bytes(test.extents)*4*MiB)
		spec.Class, spec.Block = Class{Group: "vg", Layout: test.class.Layout}, test.block
		c := planned(t, s, spec)[0].carve
		if got := strings.Join(rangeArgs(c.ranges), " "); got != test.want || c.volume.State != test.state {
			t.Errorf("block %t, %s, %d extents: %s on %s, want %s on %s", test.block, test.class.Layout, test.extents, c.volume.State, got, test.state, test.want)
		}
	}
}

// TestBlockIsNoFileSystem: a volume that was made for a file system is not answered where a raw block volume is asked for.
func TestBlockIsNoFileSystem(t *testing.T) {
	s := State{Groups: []Group{holding(testGroup("vg", []Run{{0, 100}}), "a", 4, unchanged)}}
	spec := testSpec("a", "vg", 16*MiB)
	if ps, err := plan(s, testCluster, []Spec{spec}); err != nil || ps[0].ready == nil {
		t.Errorf("the same volume again: %+v, %v", ps, err)
	}
	spec.Block = true
	if _, err := plan(s, testCluster, []Spec{spec}); KindOf(err) != KindExists || !strings.Contains(err.Error(), "for a file system") {
		t.Errorf("a raw block volume of its name: %v", err)
	}
	s.Groups[0] = holding(testGroup("vg", []Run{{0, 100}}), "a", 4, func(v *Volume) { v.Block = true })
	for _, spec.Block = range []bool{true, false} {
		if ps, err := plan(s, testCluster, []Spec{spec}); err != nil || ps[0].ready == nil || !ps[0].ready.Block {
			t.Errorf("a raw block volume that is there: %+v, %v", ps, err)
		}
	}
}
