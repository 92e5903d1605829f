package dm

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodelvm/nodelvm/lvm"
)

func TestParseRAID(t *testing.T) {
	for params, want := range map[string]RaidStatus{
		"raid1 2 AA 6144/6144 idle 0 0 -":      {"raid1", "AA", 6144, 6144, "idle"},
		"raid1 2 AD 6144/6144 idle 0 0 -":      {"raid1", "AD", 6144, 6144, "idle"},
		"raid5_ls 3 AaA 512/4096 recover 0":    {"raid5_ls", "AaA", 512, 4096, "recover"},
		"raid10 4 A-AA 10/100 frozen 3":        {"raid10", "A-AA", 10, 100, "frozen"},
		"raid6_zr 5 aaaaa 0/1024 resync 0 0 -": {"raid6_zr", "aaaaa", 0, 1024, "resync"},
	} {
		got, err := ParseRAID(params)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%q: %v, %s", params, err, diff)
		}
	}
	for _, params := range []string{"", "raid1", "raid1 2 AA 6144/6144", "raid1 3 AA 1/1 idle", "raid1 2 AX 1/1 idle", "raid1 2 AA 1 idle",
		"raid1 2 AA 2/1 idle", "raid1 2 AA -1/1 idle", "raid1 x AA 1/1 idle", "raid1 2 AA 1/99999999999999999999 idle"} {
		if s, err := ParseRAID(params); err == nil {
			t.Errorf("%q: %+v", params, s)
		}
	}
}

// TestRAIDLags: only in sync, or during a resync of all legs, does each leg have what was written.
func TestRAIDLags(t *testing.T) {
	for params, want := range map[string]bool{
		"raid1 2 AA 6144/6144 idle 0 0 -":         false,
		"raid1 2 AA 512/6144 check 0 0 -":         false,
		"raid1 2 aa 512/6144 resync 0 0 -":        false,
		"raid5_ls 3 aaa 0/4096 resync 0 0 -":      false,
		"raid10 4 aaaa 512/4096 resync 0 0 -":     false,
		"raid1 2 Aa 512/6144 recover 0 0 -":       true,
		"raid1 2 Aa 0/6144 idle 0 0 -":            true,
		"raid1 2 aA 0/6144 frozen 0 0 -":          true,
		"raid1 2 Aa 512/6144 resync 0 0 -":        true,
		"raid1 2 aa 0/6144 idle 0 0 -":            true, // a rebuild or a resync is about to start
		"raid1 2 aa 0/6144 frozen 0 0 -":          true,
		"raid5_ls 3 AaA 512/4096 recover 0 0 -":   true,
		"raid6_zr 5 aAAAa 512/4096 recover 0 -":   true,
		"raid10 4 AAaA 512/4096 recover 0 0 -":    true,
		"raid6_zr 5 aaaaa 512/4096 reshape 0 0 -": true,
	} {
		s, err := ParseRAID(params)
		if err != nil || s.Lags() != want {
			t.Errorf("%q: lags %v, want %v (%v)", params, s.Lags(), want, err)
		}
	}
}

func TestParsePool(t *testing.T) {
	for params, want := range map[string]lvm.PoolStatus{
		"1 31/2048 170/512 - rw discard_passdown error_if_no_space - 1024":                          {TransactionID: 1, Mode: "rw", MetadataUsed: 31, MetadataTotal: 2048, DataUsed: 170, DataTotal: 512},
		"7 1/9 9/9 - out_of_data_space discard_passdown queue_if_no_space - 1024":                   {TransactionID: 7, Mode: "out_of_data_space", MetadataUsed: 1, MetadataTotal: 9, DataUsed: 9, DataTotal: 9},
		"18446744073709551615 9/9 1/9 99 ro no_discard_passdown error_if_no_space needs_check 1024": {TransactionID: 1<<64 - 1, Mode: "ro", NeedsCheck: true, MetadataUsed: 9, MetadataTotal: 9, DataUsed: 1, DataTotal: 9, HeldMetadata: true},
		"Fail":  {Failed: true},
		"Error": {Failed: true},
	} {
		got, err := ParsePool(params)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(lvm.PoolStatus{})); diff != "" || err != nil {
			t.Errorf("%q: %v, %s", params, err, diff)
		}
	}
	for _, params := range []string{"", "Failed", "1 2/3 4/5 - rw", "1 x/2048 170/512 - rw a b - 1", "-1 31/2048 170/512 - rw a b - 1", "1 31/2048 170 - rw a b - 1"} {
		if s, err := ParsePool(params); err == nil {
			t.Errorf("%q: %+v", params, s)
		}
	}
}

func FuzzStatus(f *testing.F) {
	f.Add("raid1 2 AA 6144/6144 idle 0 0 -")
	f.Add("1 31/2048 170/512 - rw discard_passdown error_if_no_space - 1024")
	f.Fuzz(func(t *testing.T, params string) {
		if s, err := ParseRAID(params); err == nil {
			if d := s.Damage(); d.Legs > d.Of || d.Of != len(s.Legs) || s.Done > s.Total {
				t.Errorf("%q: %+v, %+v", params, s, d)
			}
		}
		if s, err := ParsePool(params); err == nil && (s.DataUsed > s.DataTotal || s.MetadataUsed > s.MetadataTotal) {
			t.Errorf("%q: %+v", params, s)
		}
	})
}

func FuzzTarget(f *testing.F) {
	f.Add(append(make([]byte, 40), "raid1 2 AA\x00"...), uint32(0))
	f.Fuzz(func(_ *testing.T, answer []byte, start uint32) { _, _ = parseTarget(answer, start) })
}
