package lvm_test

import (
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// TestCheckDeclarations: the error names the wrong value; correct declarations get defaults.
func TestCheckDeclarations(t *testing.T) {
	good := lvm.Declaration{Name: "vg", Tags: []string{"fast"}, Devices: []lvm.Selector{{Paths: []string{"/dev/*"}}}, Pool: lvm.PoolPolicy{Size: lvm.GiB}}
	checked, err := lvm.CheckDeclarations([]lvm.Declaration{good})
	fixture.Must(t, err)
	if want := (lvm.PoolPolicy{Name: lvm.DefaultPool, Size: lvm.GiB, AutoextendThreshold: 80, MetadataAutoextendThreshold: 60}); checked[0].Pool != want || good.Pool.Name != "" {
		t.Errorf("%+v", checked)
	}
	for words, change := range map[string]func(*lvm.Declaration){
		"a name of letters":      func(d *lvm.Declaration) { d.Name = "-y" },
		"volume group \"\"":      func(d *lvm.Declaration) { d.Name = "" },
		"\"@tag\"":               func(d *lvm.Declaration) { d.Name = "@tag" },
		"not a tag":              func(d *lvm.Declaration) { d.Tags = []string{"a b"} },
		"at least one selector":  func(d *lvm.Declaration) { d.Devices = nil },
		"a limit of 0":           func(d *lvm.Declaration) { d.MaxDevices = -1 },
		"selects every disk":     func(d *lvm.Declaration) { d.Devices = []lvm.Selector{{}} },
		"is invalid":             func(d *lvm.Declaration) { d.Devices = []lvm.Selector{{Paths: []string{"/dev/["}}} },
		"an empty list":          func(d *lvm.Declaration) { d.Devices = []lvm.Selector{{Paths: []string{}, MinSize: lvm.GiB}} },
		"of 1 bytes cannot":      func(d *lvm.Declaration) { d.Devices = []lvm.Selector{{MinSize: 1}} },   // 100m, thousandths, for 100M
		"of 500 bytes cannot":    func(d *lvm.Declaration) { d.Devices = []lvm.Selector{{MaxSize: 500}} }, // without a unit
		"\"/*/*\" is not a path": func(d *lvm.Declaration) { d.Devices = []lvm.Selector{{Paths: []string{"/*/*"}}} },
		"thin pool of 3 bytes":   func(d *lvm.Declaration) { d.Pool.Size = 3 },
		"not a path below /dev":  func(d *lvm.Declaration) { d.Devices = []lvm.Selector{{Paths: []string{"sdb"}}} },
		"select nothing":         func(d *lvm.Declaration) { d.Devices = []lvm.Selector{{MinSize: 2, MaxSize: 1}} },
		"not a name for a thin":  func(d *lvm.Declaration) { d.Pool.Name = "a/b" },
		"1 to 95 percent":        func(d *lvm.Declaration) { d.Pool.AutoextendThreshold = 100 },
		"thin pool of -1 bytes":  func(d *lvm.Declaration) { d.Pool.Size = -1 },
	} {
		bad := good
		change(&bad)
		_, err := lvm.CheckDeclarations([]lvm.Declaration{bad})
		if lvm.KindOf(err) != lvm.KindInvalid || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", words, err)
		}
	}
	if _, err := lvm.CheckDeclarations([]lvm.Declaration{good, good}); err == nil || !strings.Contains(err.Error(), "declared twice") {
		t.Errorf("twice: %v", err)
	}
}
