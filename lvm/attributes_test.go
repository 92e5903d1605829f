package lvm_test

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/nodelvm/nodelvm/lvm"
)

func TestParseLimits(t *testing.T) {
	for _, c := range []struct {
		parameters map[string]string
		want       lvm.Limits
		refused    string
	}{
		{nil, lvm.Limits{}, ""},
		{map[string]string{"readIOPS": "max", "writeBandwidthPerGiB": "max"}, lvm.Limits{}, ""},
		{map[string]string{"readIOPS": "500", "writeIOPS": "10k", "readBandwidth": "100Mi", "writeBandwidth": "50M"},
			lvm.Limits{Fixed: lvm.Rates{ReadIOPS: 500, WriteIOPS: 10000, ReadBandwidth: 100 * lvm.MiB, WriteBandwidth: 50e6}}, ""},
		{map[string]string{"readIOPSPerGiB": "3", "writeIOPSPerGiB": "1", "readBandwidthPerGiB": "1Mi", "writeBandwidthPerGiB": "2Ki"},
			lvm.Limits{PerGiB: lvm.Rates{ReadIOPS: 3, WriteIOPS: 1, ReadBandwidth: lvm.MiB, WriteBandwidth: 2 * lvm.KiB}}, ""},
		{map[string]string{"readIOPS": "100", "readIOPSPerGiB": "max", "writeIOPSPerGiB": "5"},
			lvm.Limits{Fixed: lvm.Rates{ReadIOPS: 100}, PerGiB: lvm.Rates{WriteIOPS: 5}}, ""},
		{map[string]string{"readIOPS": "4294967294", "readBandwidth": "9223372036854775807", "csi.storage.k8s.io/pv/name": "x"},
			lvm.Limits{Fixed: lvm.Rates{ReadIOPS: lvm.MaxIOPS, ReadBandwidth: math.MaxInt64}}, ""},
		{map[string]string{"iops": "100"}, lvm.Limits{}, `unknown parameter "iops"; known are readBandwidth, readBandwidthPerGiB, readIOPS, readIOPSPerGiB, writeBandwidth,`},
		{map[string]string{"readIops": "100"}, lvm.Limits{}, "(did you mean readIOPS?)"},
		{map[string]string{"PerGiB": "100"}, lvm.Limits{}, `unknown parameter "PerGiB"`},
		{map[string]string{strings.Repeat("x", 1000): "1"}, lvm.Limits{}, `unknown parameter "` + strings.Repeat("x", 64) + `"`},
		{map[string]string{"readIOPS": "0"}, lvm.Limits{}, "give max for no limit"},
		{map[string]string{"readIOPS": "-5"}, lvm.Limits{}, "give a whole number"},
		{map[string]string{"readIOPS": ""}, lvm.Limits{}, "give a whole number"},
		{map[string]string{"readIOPS": "1.5k"}, lvm.Limits{}, "give a whole number"},
		{map[string]string{"readBandwidth": "100MB"}, lvm.Limits{}, "give a whole number"},
		{map[string]string{"readBandwidth": "10Ei"}, lvm.Limits{}, "too large"},
		{map[string]string{"readBandwidth": "9999999999999999999"}, lvm.Limits{}, "too large"},
		{map[string]string{"readIOPS": "4294967295"}, lvm.Limits{}, "readIOPS is 4294967295; it can be from 10 to 4294967294 requests per second"},
		{map[string]string{"writeIOPS": "9"}, lvm.Limits{}, "writeIOPS is 9; it can be from 10 to"},
		{map[string]string{"writeBandwidth": "100"}, lvm.Limits{}, "writeBandwidth is 100; it can be from 65536 to"},
		{map[string]string{"readIOPSPerGiB": "5G"}, lvm.Limits{}, "readIOPSPerGiB is 5000000000; it can be from 1 to"},
		{map[string]string{"readIOPS": "100", "readIOPSPerGiB": "1"}, lvm.Limits{}, "both readIOPS and readIOPSPerGiB are given: remove one"},
	} {
		got, err := lvm.ParseLimits(c.parameters)
		if got != c.want || (err == nil) != (c.refused == "") {
			t.Errorf("%v: %+v, %v; want %+v", c.parameters, got, err, c.want)
		}
		if err != nil && (lvm.KindOf(err) != lvm.KindInvalid || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%v: %v, want %q", c.parameters, err, c.refused)
		}
	}
}

// TestAnyParametersOfLimits: whatever a class says, the limits are refused or in their range, at any size.
func TestAnyParametersOfLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.SampledFrom(lvm.LimitParameters()), rapid.String())
		value := rapid.OneOf(rapid.StringMatching(`[0-9]{1,20}([kMGTPE]i?)?`), rapid.String(), rapid.Map(rapid.Int64(), func(n int64) string { return strconv.FormatInt(n, 10) }))
		l, err := lvm.ParseLimits(rapid.MapOf(name, value).Draw(t, "parameters"))
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Fatalf("a message of %d bytes", len(err.Error()))
			}
			return
		}
		at := l.At(lvm.Bytes(rapid.Int64().Draw(t, "size")))
		for _, n := range []int64{at.ReadIOPS, at.WriteIOPS} {
			if n != 0 && (n < lvm.MinIOPS || n > lvm.MaxIOPS) {
				t.Fatalf("%+v: %d requests per second", l, n)
			}
		}
		for _, n := range []lvm.Bytes{at.ReadBandwidth, at.WriteBandwidth} {
			if n != 0 && n < lvm.MinBandwidth {
				t.Fatalf("%+v: %d bytes per second", l, n)
			}
		}
	})
}
