package lvm

import (
	"strings"
	"testing"
)

// TestCheckDeclarations: what is wrong is told; the rest gets its defaults.
func TestCheckDeclarations(t *testing.T) {
	good := Declaration{Name: "vg", Tags: []string{"fast"}, Devices: []Selector{{Paths: []string{"/dev/*"}}}, Pool: PoolPolicy{Size: GiB}}
	checked, err := checkDeclarations([]Declaration{good})
	must(t, err)
	if want := (PoolPolicy{Name: DefaultPool, Size: GiB, GrowData: 80, GrowMetadata: 60}); checked[0].Pool != want || good.Pool.Name != "" {
		t.Errorf("%+v", checked)
	}
	for words, change := range map[string]func(*Declaration){
		"a name of letters":       func(d *Declaration) { d.Name = "-y" },
		"volume group \"\"":       func(d *Declaration) { d.Name = "" },
		"\"@tag\"":                func(d *Declaration) { d.Name = "@tag" },
		"not a tag":               func(d *Declaration) { d.Tags = []string{"a b"} },
		"at least one selector":   func(d *Declaration) { d.Devices = nil },
		"a limit of 0":            func(d *Declaration) { d.MaxDevices = -1 },
		"would take every disk":   func(d *Declaration) { d.Devices = []Selector{{}} },
		"is not right":            func(d *Declaration) { d.Devices = []Selector{{Paths: []string{"/dev/["}}} },
		"an empty list":           func(d *Declaration) { d.Devices = []Selector{{Paths: []string{}, MinSize: GiB}} },
		"of 1 bytes cannot":       func(d *Declaration) { d.Devices = []Selector{{MinSize: 1}} },   // 100m, thousandths, for 100M
		"of 500 bytes cannot":     func(d *Declaration) { d.Devices = []Selector{{MaxSize: 500}} }, // without a unit
		"\"/*/*\" is not a path":  func(d *Declaration) { d.Devices = []Selector{{Paths: []string{"/*/*"}}} },
		" 3 bytes cannot be made": func(d *Declaration) { d.Pool.Size = 3 },
		"not a path below /dev":   func(d *Declaration) { d.Devices = []Selector{{Paths: []string{"sdb"}}} },
		"select nothing":          func(d *Declaration) { d.Devices = []Selector{{MinSize: 2, MaxSize: 1}} },
		"not a name for a thin":   func(d *Declaration) { d.Pool.Name = "a/b" },
		"1 to 95 percent":         func(d *Declaration) { d.Pool.GrowData = 100 },
		"-1 bytes cannot be made": func(d *Declaration) { d.Pool.Size = -1 },
	} {
		bad := good
		change(&bad)
		_, err := checkDeclarations([]Declaration{bad})
		if KindOf(err) != KindInvalid || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", words, err)
		}
	}
	if _, err := checkDeclarations([]Declaration{good, good}); err == nil || !strings.Contains(err.Error(), "declared twice") {
		t.Errorf("twice: %v", err)
	}
}
