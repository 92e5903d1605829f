package lvm_test

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// AnyLimits draws limits in their ranges.
var AnyLimits = rapid.Custom(func(t *rapid.T) (l lvm.Limits) {
	iops := func(fixed, each *int64) {
		switch rapid.IntRange(0, 2).Draw(t, "form") {
		case 1:
			*fixed = rapid.Int64Range(lvm.MinIOPS, lvm.MaxIOPS).Draw(t, "fixed")
		case 2:
			*each = rapid.Int64Range(1, lvm.MaxIOPS).Draw(t, "each")
		}
	}
	bandwidth := func(fixed, each *lvm.Bytes) {
		switch rapid.IntRange(0, 2).Draw(t, "form") {
		case 1:
			*fixed = lvm.Bytes(rapid.Int64Range(int64(lvm.MinBandwidth), math.MaxInt64).Draw(t, "fixed"))
		case 2:
			*each = lvm.Bytes(rapid.Int64Range(1, math.MaxInt64).Draw(t, "each"))
		}
	}
	iops(&l.Fixed.ReadIOPS, &l.PerGiB.ReadIOPS)
	iops(&l.Fixed.WriteIOPS, &l.PerGiB.WriteIOPS)
	bandwidth(&l.Fixed.ReadBandwidth, &l.PerGiB.ReadBandwidth)
	bandwidth(&l.Fixed.WriteBandwidth, &l.PerGiB.WriteBandwidth)
	return l
})

// TestLimitsAt: a limit per GiB follows the size within the range of the limit.
func TestLimitsAt(t *testing.T) {
	for _, c := range []struct {
		limits lvm.Limits
		size   lvm.Bytes
		want   lvm.Rates
	}{
		{lvm.Limits{}, lvm.GiB, lvm.Rates{}},
		{lvm.Limits{Fixed: lvm.Rates{ReadIOPS: 100, WriteBandwidth: lvm.MiB}}, 5 * lvm.TiB, lvm.Rates{ReadIOPS: 100, WriteBandwidth: lvm.MiB}},
		{lvm.Limits{PerGiB: lvm.Rates{ReadIOPS: 30, WriteIOPS: 3}}, 2*lvm.GiB + 512*lvm.MiB, lvm.Rates{ReadIOPS: 75, WriteIOPS: lvm.MinIOPS}},
		{lvm.Limits{PerGiB: lvm.Rates{ReadBandwidth: 1, WriteBandwidth: lvm.MiB}}, 100 * lvm.GiB, lvm.Rates{ReadBandwidth: lvm.MinBandwidth, WriteBandwidth: 100 * lvm.MiB}},
		{lvm.Limits{PerGiB: lvm.Rates{ReadIOPS: lvm.MaxIOPS, WriteIOPS: 1}}, 2 * lvm.GiB, lvm.Rates{WriteIOPS: lvm.MinIOPS}},
		{lvm.Limits{PerGiB: lvm.Rates{ReadBandwidth: math.MaxInt64, WriteIOPS: lvm.MaxIOPS}}, math.MaxInt64, lvm.Rates{}},
		{lvm.Limits{PerGiB: lvm.Rates{ReadBandwidth: math.MaxInt64}}, lvm.GiB, lvm.Rates{ReadBandwidth: math.MaxInt64}},
		{lvm.Limits{PerGiB: lvm.Rates{ReadIOPS: 20}}, -1, lvm.Rates{ReadIOPS: lvm.MinIOPS}},
	} {
		if got := c.limits.At(c.size); got != c.want {
			t.Errorf("%+v of a volume of %s: %+v, want %+v", c.limits, c.size, got, c.want)
		}
	}
}

// TestDamagedLimits: a tag that this version cannot interpret limits nothing, and the volume stays usable.
func TestDamagedLimits(t *testing.T) {
	for _, c := range []struct {
		value, problem string
	}{
		{"riops=100:wbps/GiB=65536", ""},
		{"", "cannot interpret"},
		{"riops", "cannot interpret"},
		{"riops=", "cannot interpret"},
		{"riops=0", "cannot interpret"},
		{"riops=-5", "cannot interpret"},
		{"riops=99999999999999999999", "cannot interpret"},
		{"riops=100:", "cannot interpret"},
		{"latency=5", "cannot interpret"},
		{"riops/TiB=5", "cannot interpret"},
		{"#ff", "cannot interpret"},
		{"riops=100:riops=100", "two limits riops"},
		{"riops=100:riops/GiB=1", "remove one"},
		{"riops=9", "from 10 to"},
		{"riops=4294967295", "from 10 to"},
		{"wbps=65535", "from 65536 to"},
	} {
		lv := fixture.Decoded(lvm.Group{Name: "vg"}, lvm.LV{Name: "lv7", Tags: []string{"nodelvm.v=1", "nodelvm.state=ready", "nodelvm.cluster=c", "nodelvm.iolimits=" + c.value}})
		v, ours := lv.AsVolume()
		if err := lv.CheckTags(); err != nil || !ours {
			t.Errorf("%q: the volume is unusable: %v", c.value, err)
		}
		if (c.problem == "") != (v.LimitsProblem == "") || !strings.Contains(v.LimitsProblem, c.problem) {
			t.Errorf("%q: problem %q, want %q", c.value, v.LimitsProblem, c.problem)
		}
		if (c.problem == "") == (v.Limits == lvm.Limits{}) {
			t.Errorf("%q: limits %+v, problem %q", c.value, v.Limits, v.LimitsProblem)
		}
	}
}
