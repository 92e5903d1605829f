package lvm

import (
	"context"
	"time"

	"pgregory.net/rapid"
)

const testCluster = "cluster-1"

// testGroup has one disk of 100 extents of 4 MiB for each list of free runs.
func testGroup(name string, free ...[]Run) Group {
	g := Group{UUID: "uuid-" + name, Name: name, Tags: []string{"fast"}, ExtentSize: 4 * MiB, MDASize: MiB, MDAFree: MiB}
	for i, runs := range free {
		disk := string(rune('a' + i))
		g.PVs = append(g.PVs, PV{UUID: name + disk, Device: "/dev/" + name + disk, Extents: 100, Allocatable: true, Free: runs})
	}
	return g
}

func testSpec(name, group string, size Bytes) Spec {
	return Spec{Name: name, Class: Class{Group: group, Layout: LayoutLinear, Wipe: WipeZero}, Required: size}
}

// holding adds a volume of ours to a group.
func holding(g Group, name string, extents Extents, change func(*Volume)) Group {
	v := Volume{ID: ID{VG: g.UUID, LV: lvName(name)}, Name: name, Cluster: testCluster, Class: Class{Layout: LayoutLinear, Wipe: WipeZero}, State: StateReady}
	change(&v)
	g.LVs = append(g.LVs, LV{UUID: "lv-" + name, Name: lvName(name), Tags: tagsOf(v), Extents: extents, Type: "linear"})
	return g
}

func unchanged(*Volume) {}

// anyGroup draws a group with any holes, of any extent size.
func anyGroup(name string) *rapid.Generator[Group] {
	return rapid.Custom(func(t *rapid.T) Group {
		g := testGroup(name)
		g.ExtentSize = KiB << rapid.OneOf(rapid.IntRange(0, 16), rapid.IntRange(8, 13)).Draw(t, "extent size")
		g.MDAFree = Bytes(rapid.IntRange(0, 256).Draw(t, "KiB of metadata area")) * KiB
		for i := range rapid.OneOf(rapid.IntRange(0, 4), rapid.IntRange(4, 8)).Draw(t, "disks") {
			disk := string(rune('a' + i))
			pv := PV{UUID: name + disk, Device: "/dev/" + name + disk, Allocatable: rapid.IntRange(0, 9).Draw(t, "closed") > 0}
			for range rapid.IntRange(0, 5).Draw(t, "runs") {
				start := pv.Extents + Extents(rapid.IntRange(1, 9).Draw(t, "used"))
				run := Run{start, Extents(rapid.IntRange(1, 40).Draw(t, "free"))}
				pv.Free = append(pv.Free, run)
				pv.Extents = run.Start + run.Count
			}
			g.PVs = append(g.PVs, pv)
		}
		return g
	})
}

func fiveDisks() State {
	disk := []Run{{0, 100}}
	g := testGroup("vg", disk, disk, disk, disk, disk)
	g.MDAFree = MiB
	return State{Groups: []Group{g}}
}

func specIn(name string, class Class, size Bytes) Spec {
	class.Group = "vg"
	return Spec{Name: name, Class: class, Required: size}
}

var thinClass = Class{Layout: LayoutThin}

// anyClass draws a class that is right, with its defaults filled in.
func anyClass(group string) *rapid.Generator[Class] {
	return rapid.Custom(func(t *rapid.T) Class {
		class := Class{Group: group, Layout: rapid.SampledFrom([]Layout{LayoutLinear, LayoutStriped, LayoutRAID1, LayoutRAID5, LayoutRAID6, LayoutRAID10, LayoutThin}).Draw(t, "layout")}
		number := func(name string, least, most int) int {
			return rapid.OneOf(rapid.Just(least), rapid.IntRange(least, min(most, least+3)), rapid.IntRange(least, most)).Draw(t, name)
		}
		switch class.Layout {
		case LayoutStriped:
			class.Stripes = number("stripes", 2, 128)
		case LayoutRAID1:
			class.Mirrors = number("mirrors", 1, 9)
		case LayoutRAID5:
			class.Stripes = number("stripes", 2, 63)
		case LayoutRAID6:
			class.Stripes = number("stripes", 3, 62)
		case LayoutRAID10:
			class.Stripes, class.Mirrors = number("stripes", 2, 32), 1
		case LayoutThin:
			class.Overprovision = number("overprovision", 100, 10000)
		}
		if class.Stripes > 0 {
			class.StripeSize = 4 * KiB << rapid.IntRange(0, 6).Draw(t, "stripe size")
		}
		if class.Layout == LayoutThin {
			class.Pool = rapid.SampledFrom([]string{DefaultPool, "pool_2"}).Draw(t, "pool")
		} else {
			class.Wipe = rapid.SampledFrom([]Wipe{WipeZero, WipeNone}).Draw(t, "wipe")
		}
		return class
	})
}

// scripted answers its states in turn, the last one for ever.
type scripted struct {
	states []State
	errs   error
	reads  int
}

func (s *scripted) Read(context.Context) (State, error) {
	s.reads++
	state := s.states[0]
	if len(s.states) > 1 {
		s.states = s.states[1:]
	}
	return state, s.errs
}

// onDevices answers as LVM's report does, whatever the devices.
func (s *scripted) onDevices(ctx context.Context, _ []string) (State, error) { return s.Read(ctx) }

// told is a state of one group.
func told(seqno int64, change func(*Group)) State {
	g := Group{UUID: "u", Name: "vg", Seqno: seqno, ExtentSize: 4 * MiB,
		PVs: []PV{{UUID: "p", Device: "/dev/none", Extents: 9, Free: []Run{{Start: 3, Count: 6}}}},
		LVs: []LV{{Name: "a", UUID: "l", Extents: 3, Type: "linear", Created: time.Unix(5, 0),
			Segments: []Segment{{Extents: 3, Type: "linear", Areas: []Area{{PV: "p"}}}}}}}
	if change != nil {
		change(&g)
	}
	return State{Groups: []Group{g}}
}
