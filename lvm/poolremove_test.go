package lvm

import "testing"

// TestRemovable: only a pool of this driver and cluster that holds nothing, and that is not declared with a size.
func TestRemovable(t *testing.T) {
	tags := poolTags(testCluster)
	pool := LV{UUID: "p", Name: "pool", Tags: tags, Type: "thin-pool", Extents: 9, Thin: &ThinPool{}}
	declared := func(group, name string, size Bytes) []Declaration {
		return []Declaration{{Name: group, Pool: PoolPolicy{Name: name, Size: size}}}
	}
	for name, test := range map[string]struct {
		change   func(*LV)
		others   []LV
		declared []Declaration
		want     bool
	}{
		"empty":                        {want: true},
		"beside others":                {others: []LV{{Name: "v", Pool: "another"}, {Name: "w"}}, want: true},
		"declared without a size":      {declared: declared("vg", "pool", 0), want: true},
		"declared in another group":    {declared: declared("vg2", "pool", GiB), want: true},
		"another one declared":         {declared: declared("vg", "pool2", GiB), want: true},
		"declared":                     {declared: declared("vg", "pool", GiB)},
		"with a volume":                {others: []LV{{Name: "v", Pool: "pool"}}},
		"with a hidden volume":         {others: []LV{{Name: "v", Pool: "pool", Hidden: true}}},
		"used by something":            {change: func(lv *LV) { lv.UsedBy = []string{"x"} }},
		"a part of something":          {change: func(lv *LV) { lv.Hidden = true }},
		"half made":                    {change: func(lv *LV) { lv.Thin = nil }},
		"an admin's":                   {change: func(lv *LV) { lv.Tags = nil }},
		"another cluster's":            {change: func(lv *LV) { lv.Tags = poolTags("cluster-2") }},
		"a damaged tag":                {change: func(lv *LV) { lv.Tags = append([]string{"nodelvm.cluster=#zz"}, tags...) }},
		"a volume with the pool's tag": {change: func(lv *LV) { lv.Thin, lv.Type = nil, "linear" }},
	} {
		lv := pool
		if test.change != nil {
			test.change(&lv)
		}
		g := Group{Name: "vg", LVs: append([]LV{lv}, test.others...)}
		if got := removable(g, lv, testCluster, test.declared); got != test.want {
			t.Errorf("%s: removable: %v", name, got)
		}
	}
}
