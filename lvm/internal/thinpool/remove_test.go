package thinpool

import (
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// TestRemovable: only an empty pool of this driver and cluster without a declared size.
func TestRemovable(t *testing.T) {
	tags := lvm.PoolTags(fixture.TestCluster)
	pool := lvm.LV{UUID: "p", Name: "pool", Tags: tags, Type: "thin-pool", Extents: 9, Thin: &lvm.ThinPool{}}
	declared := func(group lvm.VGName, name string, size lvm.Bytes) []lvm.Declaration {
		return []lvm.Declaration{{Name: group, Pool: lvm.PoolPolicy{Name: name, Size: size}}}
	}
	for name, test := range map[string]struct {
		change   func(*lvm.LV)
		others   []lvm.LV
		declared []lvm.Declaration
		want     bool
	}{
		"empty":                        {want: true},
		"beside others":                {others: []lvm.LV{{Name: "v", Pool: "another"}, {Name: "w"}}, want: true},
		"declared without a size":      {declared: declared("vg", "pool", 0), want: true},
		"declared in another group":    {declared: declared("vg2", "pool", lvm.GiB), want: true},
		"another one declared":         {declared: declared("vg", "pool2", lvm.GiB), want: true},
		"declared":                     {declared: declared("vg", "pool", lvm.GiB)},
		"with a volume":                {others: []lvm.LV{{Name: "v", Pool: "pool"}}},
		"with a hidden volume":         {others: []lvm.LV{{Name: "v", Pool: "pool", Hidden: true}}},
		"used by something":            {change: func(lv *lvm.LV) { lv.UsedBy = []string{"x"} }},
		"a part of something":          {change: func(lv *lvm.LV) { lv.Hidden = true }},
		"half made":                    {change: func(lv *lvm.LV) { lv.Thin = nil }},
		"an admin's":                   {change: func(lv *lvm.LV) { lv.Tags = nil }},
		"another cluster's":            {change: func(lv *lvm.LV) { lv.Tags = lvm.PoolTags("cluster-2") }},
		"a damaged tag":                {change: func(lv *lvm.LV) { lv.Tags = append([]string{"nodelvm.cluster=#zz"}, tags...) }},
		"a volume with the pool's tag": {change: func(lv *lvm.LV) { lv.Thin, lv.Type = nil, "linear" }},
	} {
		lv := pool
		if test.change != nil {
			test.change(&lv)
		}
		lv = fixture.Decoded(lvm.Group{}, lv)
		g := lvm.Group{Name: "vg", LVs: append([]lvm.LV{lv}, test.others...)}
		if got := removable(g, lv, fixture.TestCluster, test.declared); got != test.want {
			t.Errorf("%s: removable: %v", name, got)
		}
	}
}
