package lvm

import (
	"testing"
)

func yes() *bool { b := true; return &b }

// TestSelector: all conditions must hold; only a pattern without wildcards names a device.
func TestSelector(t *testing.T) {
	d := disk{
		blockDevice: blockDevice{path: "/dev/sdb", size: 100 * GiB}, model: "FAST DISK 9", rotational: true,
		links: []string{"/dev/disk/by-id/ata-FAST_9", "/dev/disk/by-path/pci-0-ata-1"},
	}
	for _, test := range []struct {
		name            string
		s               Selector
		selected, named bool
	}{
		{"by path", Selector{Paths: []string{"/dev/sd?"}}, true, false},
		{"by name", Selector{Paths: []string{"/dev/sda", "/dev/sdb"}}, true, true},
		{"by id", Selector{Paths: []string{"/dev/disk/by-id/ata-*"}}, true, false},
		{"by the very id", Selector{Paths: []string{"/dev/disk/by-path/pci-0-ata-1"}}, true, true},
		{"another path", Selector{Paths: []string{"/dev/sdc", "/dev/*/x"}}, false, false},
		{"a wildcard does not reach into folders", Selector{Paths: []string{"/dev/disk/*"}}, false, false},
		{"sizes, both ends included", Selector{MinSize: 100 * GiB, MaxSize: 100 * GiB}, true, false},
		{"too small", Selector{Paths: []string{"/dev/sdb"}, MinSize: 100*GiB + 1}, false, false},
		{"too large", Selector{MaxSize: 100*GiB - 1}, false, false},
		{"rotational", Selector{Rotational: yes()}, true, false},
		{"not rotational", Selector{Rotational: new(bool)}, false, false},
		{"model", Selector{Model: "FAST*"}, true, false},
		{"another model", Selector{Model: "SLOW*"}, false, false},
	} {
		if selected, named := selectorMatches(test.s, d); selected != test.selected || named != test.named {
			t.Errorf("%s: selected %v, named %v", test.name, selected, named)
		}
	}
	d.model = ""
	if selected, _ := selectorMatches((Selector{Model: "FAST*"}), d); selected {
		t.Error("a device without a model has any model")
	}
}
