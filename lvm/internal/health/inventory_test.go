package health

import (
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

func TestParseThin(t *testing.T) {
	for params, want := range map[string]lvm.Bytes{"4096 8191": 2 * lvm.MiB, "0 -": 0, "8": 4 * lvm.KiB} {
		if got, err := parseThin(params); err != nil || got != want {
			t.Errorf("%q: %d, %v", params, got, err)
		}
	}
	for _, params := range []string{"", "Fail", "Error", "-1 0", "99999999999999999 1"} {
		if got, err := parseThin(params); err == nil {
			t.Errorf("%q: %d", params, got)
		}
	}
}

// TestOursAlone: a group belongs to the driver alone if every volume in it does.
func TestOursAlone(t *testing.T) {
	ours := lvm.LV{Name: "v", Tags: []string{"nodelvm.v=1"}}
	for what, c := range map[string]struct {
		lvs  []lvm.LV
		want bool
	}{
		"no volume":         {nil, true},
		"the driver's":      {[]lvm.LV{ours, {Name: "v_rimage_0", Hidden: true}}, true},
		"one of the node's": {[]lvm.LV{ours, {Name: "root"}}, false},
	} {
		if got := oursAlone((lvm.Group{LVs: c.lvs})); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}
