package lvm

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseRAID(t *testing.T) {
	for params, want := range map[string]raidStatus{
		"raid1 2 AA 6144/6144 idle 0 0 -":      {"raid1", "AA", 6144, 6144, "idle"},
		"raid1 2 AD 6144/6144 idle 0 0 -":      {"raid1", "AD", 6144, 6144, "idle"},
		"raid5_ls 3 AaA 512/4096 recover 0":    {"raid5_ls", "AaA", 512, 4096, "recover"},
		"raid10 4 A-AA 10/100 frozen 3":        {"raid10", "A-AA", 10, 100, "frozen"},
		"raid6_zr 5 aaaaa 0/1024 resync 0 0 -": {"raid6_zr", "aaaaa", 0, 1024, "resync"},
	} {
		got, err := parseRAID(params)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(raidStatus{})); diff != "" || err != nil {
			t.Errorf("%q: %v, %s", params, err, diff)
		}
	}
	for _, params := range []string{"", "raid1", "raid1 2 AA 6144/6144", "raid1 3 AA 1/1 idle", "raid1 2 AX 1/1 idle", "raid1 2 AA 1 idle",
		"raid1 2 AA 2/1 idle", "raid1 2 AA -1/1 idle", "raid1 x AA 1/1 idle", "raid1 2 AA 1/99999999999999999999 idle"} {
		if s, err := parseRAID(params); err == nil {
			t.Errorf("%q: %+v", params, s)
		}
	}
}

func TestParsePool(t *testing.T) {
	for params, want := range map[string]poolStatus{
		"1 31/2048 170/512 - rw discard_passdown error_if_no_space - 1024":        {mode: "rw", metadataUsed: 31, metadataTotal: 2048, dataUsed: 170, dataTotal: 512},
		"7 1/9 9/9 - out_of_data_space discard_passdown queue_if_no_space - 1024": {mode: "out_of_data_space", metadataUsed: 1, metadataTotal: 9, dataUsed: 9, dataTotal: 9},
		"7 9/9 1/9 99 ro no_discard_passdown error_if_no_space needs_check 1024":  {mode: "ro", needsCheck: true, metadataUsed: 9, metadataTotal: 9, dataUsed: 1, dataTotal: 9},
		"Fail":  {failed: true},
		"Error": {failed: true},
	} {
		got, err := parsePool(params)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(poolStatus{})); diff != "" || err != nil {
			t.Errorf("%q: %v, %s", params, err, diff)
		}
	}
	for _, params := range []string{"", "Failed", "1 2/3 4/5 - rw", "1 x/2048 170/512 - rw a b - 1", "1 31/2048 170 - rw a b - 1"} {
		if s, err := parsePool(params); err == nil {
			t.Errorf("%q: %+v", params, s)
		}
	}
}

func FuzzStatus(f *testing.F) {
	f.Add("raid1 2 AA 6144/6144 idle 0 0 -")
	f.Add("1 31/2048 170/512 - rw discard_passdown error_if_no_space - 1024")
	f.Fuzz(func(t *testing.T, params string) {
		if s, err := parseRAID(params); err == nil {
			if d := s.damage(); d.legs > d.of || d.of != len(s.legs) || s.done > s.total {
				t.Errorf("%q: %+v, %+v", params, s, d)
			}
		}
		if s, err := parsePool(params); err == nil && (s.dataUsed > s.dataTotal || s.metadataUsed > s.metadataTotal) {
			t.Errorf("%q: %+v", params, s)
		}
	})
}

func FuzzFirstTarget(f *testing.F) {
	f.Add(append(make([]byte, 40), "raid1 2 AA\x00"...), uint32(0))
	f.Fuzz(func(_ *testing.T, answer []byte, start uint32) { _, _, _ = firstTarget(answer, start) })
}

func TestRAIDDamage(t *testing.T) {
	for legs, want := range map[string]damage{
		"raid1 AA": {of: 2}, "raid1 AD": {of: 2, legs: 1}, "raid1 DDA": {of: 3, legs: 2}, "raid1 DD": {of: 2, legs: 2, lost: true},
		"raid5_ls AaA": {of: 3}, "raid5_ls A-A": {of: 3, legs: 1}, "raid5_ls ADD": {of: 3, legs: 2, lost: true},
		"raid6_zr ADDAA": {of: 5, legs: 2}, "raid6_zr DDDAA": {of: 5, legs: 3, lost: true},
		"raid10 ADDA": {of: 4, legs: 2}, "raid10 DDAA": {of: 4, legs: 2, lost: true}, "raid10 AADD": {of: 4, legs: 2, lost: true},
		"raid4 AD": {of: 2, legs: 1}, "raid0 AD": {of: 2, legs: 1, lost: true},
	} {
		kind, letters, _ := strings.Cut(legs, " ")
		if got := (raidStatus{kind: kind, legs: letters}).damage(); got != want {
			t.Errorf("%s: %+v, want %+v", legs, got, want)
		}
	}
}

// What is left of captured groups whose disks are missing.
func TestDamage(t *testing.T) {
	for _, c := range []struct {
		scenario, lv string
		want         damage
	}{
		{"degraded", "r", damage{of: 2, legs: 1}},
		{"missing", "stays", damage{}},
		{"missing", "gone", damage{lost: true}},
		{"lostlegs", "s", damage{lost: true}},
		{"lost", "r1", damage{of: 3, legs: 1}},
		{"lost", "r6", damage{of: 5, legs: 2}},
		{"lost", "r5", damage{of: 3, legs: 1}},
		{"lost", "r10", damage{of: 4, legs: 1}},
		{"lost", "s", damage{lost: true}},
		{"layouts", "r6", damage{}},
		{"thinonraid", "t", damage{}},
	} {
		node := newTestNode(t)
		node.plug(t, "testdata/groups/"+c.scenario)
		g := node.read(t).Groups[0]
		missing := map[string]bool{}
		for _, pv := range g.PVs {
			missing[pv.UUID] = pv.Missing
		}
		if got := g.damageTo(*g.named(c.lv), missing, 0); got != c.want {
			t.Errorf("%s/%s: %+v, want %+v", c.scenario, c.lv, got, c.want)
		}
	}
}

// A thin volume whose pool has its data on a mirror, and its metadata on one disk alone.
func TestDamageBelow(t *testing.T) {
	node := newTestNode(t)
	node.plug(t, "testdata/groups/thinonraid")
	g := node.read(t).Groups[0]
	metadata := g.named("pool_tmeta").Segments[0].Areas[0].PV
	for _, pv := range g.PVs {
		want := damage{of: 2, legs: 1, lost: pv.UUID == metadata}
		if got := g.damageTo(*g.named("t"), map[string]bool{pv.UUID: true}, 0); got != want {
			t.Errorf("without %s: %+v, want %+v", pv.Device, got, want)
		}
	}
}
