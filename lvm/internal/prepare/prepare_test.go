package prepare

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
	"github.com/nodelvm/nodelvm/lvm/internal/ondisk"
)

func yes() *bool { b := true; return &b }

// TestSelector: all conditions must hold; only a pattern without wildcards names a device.
func TestSelector(t *testing.T) {
	d := ondisk.Disk{
		BlockDevice: ondisk.BlockDevice{Path: "/dev/sdb", Size: 100 * lvm.GiB}, Model: "FAST DISK 9", Rotational: true,
		Links: []string{"/dev/disk/by-id/ata-FAST_9", "/dev/disk/by-path/pci-0-ata-1"},
	}
	for _, test := range []struct {
		name            string
		s               lvm.Selector
		selected, named bool
	}{
		{"by path", lvm.Selector{Paths: []string{"/dev/sd?"}}, true, false},
		{"by name", lvm.Selector{Paths: []string{"/dev/sda", "/dev/sdb"}}, true, true},
		{"by id", lvm.Selector{Paths: []string{"/dev/disk/by-id/ata-*"}}, true, false},
		{"by the very id", lvm.Selector{Paths: []string{"/dev/disk/by-path/pci-0-ata-1"}}, true, true},
		{"another path", lvm.Selector{Paths: []string{"/dev/sdc", "/dev/*/x"}}, false, false},
		{"a wildcard does not match a slash", lvm.Selector{Paths: []string{"/dev/disk/*"}}, false, false},
		{"sizes, both ends included", lvm.Selector{MinSize: 100 * lvm.GiB, MaxSize: 100 * lvm.GiB}, true, false},
		{"too small", lvm.Selector{Paths: []string{"/dev/sdb"}, MinSize: 100*lvm.GiB + 1}, false, false},
		{"too large", lvm.Selector{MaxSize: 100*lvm.GiB - 1}, false, false},
		{"rotational", lvm.Selector{Rotational: yes()}, true, false},
		{"not rotational", lvm.Selector{Rotational: new(bool)}, false, false},
		{"model", lvm.Selector{Model: "FAST*"}, true, false},
		{"another model", lvm.Selector{Model: "SLOW*"}, false, false},
	} {
		if selected, named := selectorMatches(test.s, d); selected != test.selected || named != test.named {
			t.Errorf("%s: selected %v, named %v", test.name, selected, named)
		}
	}
	d.Model = ""
	if selected, _ := selectorMatches((lvm.Selector{Model: "FAST*"}), d); selected {
		t.Error("a device without a model matches any model")
	}
}

// TestNotBlank: a device that holds data is an error where a path names it. Where only a pattern selects it, it is an error while the
// group has no device: the pattern may well match the node's own disks.
func TestNotBlank(t *testing.T) {
	disks := []ondisk.Disk{{BlockDevice: ondisk.BlockDevice{Path: "/dev/sda"}}, {BlockDevice: ondisk.BlockDevice{Path: "/dev/sdb"}}}
	for name, test := range map[string]struct {
		path       string
		held       map[string]string
		namedAlone bool
		want       string // "": no error
	}{
		"named":                          {"/dev/sda", map[string]string{"/dev/sda": "it holds ext4"}, true, "/dev/sda: it holds ext4. "},
		"of a pattern, without a group":  {"/dev/sd*", map[string]string{"/dev/sda": "it holds ext4", "/dev/sdb": "it holds xfs"}, false, "/dev/sda: it holds ext4; /dev/sdb: it holds xfs. "},
		"of a pattern, beside the group": {"/dev/sd*", map[string]string{"/dev/sda": "it holds ext4"}, true, ""},
		"not selected":                   {"/dev/sdb", map[string]string{"/dev/sda": "it holds ext4"}, false, ""},
		"blank":                          {"/dev/sda", map[string]string{"/dev/sda": ""}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := &preparing{disks: disks, held: test.held}
			err := p.notBlank(lvm.Declaration{Name: "vg", Devices: []lvm.Selector{{Paths: []string{test.path}}}}, test.namedAlone)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

// TestNamesHardware: a declaration vouches for a device that it names by its hardware or its place, and for no name that another disk can
// get.
func TestNamesHardware(t *testing.T) {
	d := ondisk.Disk{BlockDevice: ondisk.BlockDevice{Path: "/dev/sdb", Size: lvm.GiB}, Links: []string{"/dev/disk/by-id/ata-FAST_9"}}
	for path, want := range map[string]bool{"/dev/disk/by-id/ata-FAST_9": true, "/dev/disk/by-id/ata-*": false, "/dev/sdb": false, "/dev/disk/by-id/ata-FAST_8": false} {
		if got := namesHardware(lvm.Declaration{Devices: []lvm.Selector{{Paths: []string{path}}}}, d); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	if namesHardware(lvm.Declaration{Devices: []lvm.Selector{{Paths: []string{"/dev/disk/by-id/ata-FAST_9"}, MinSize: lvm.TiB}}}, d) {
		t.Error("although another condition does not hold")
	}
}

// TestGroupOnIgnoredDisk: a declared group is not created while it may be on a device that it selects and the driver ignores.
func TestGroupOnIgnoredDisk(t *testing.T) {
	disks := []ondisk.Disk{{BlockDevice: ondisk.BlockDevice{Path: "/dev/sda"}}, {BlockDevice: ondisk.BlockDevice{Path: "/dev/vdb"}}}
	p := &preparing{disks: disks, state: lvm.State{Unaccepted: []lvm.UnacceptedPV{{Device: "/dev/sda"}}}}
	for path, want := range map[string]string{"/dev/sd*": "nodelvm disks accept /dev/sda", "/dev/vd*": ""} {
		err := p.mayBeIgnored(lvm.Declaration{Name: "vg", Devices: []lvm.Selector{{Paths: []string{path}}}})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestGroupThatMayHaveBeenHere: a declared group whose disks are missing is not created again, nor one that may be such a group.
func TestGroupThatMayHaveBeenHere(t *testing.T) {
	dir := t.TempDir()
	fixture.Must(t, os.WriteFile(filepath.Join(dir, "vg"), nil, 0o600))
	for backups, words := range map[string]string{dir: "it was on this node before", filepath.Join(dir, "vg"): "cannot determine", filepath.Join(dir, "none"): "", "": ""} {
		p := &preparing{Preparer: preparerOn(lvm.Machine{})}
		p.engine.Config.BackupDir = backups
		if g, err := p.standing("vg"); g != nil || (err == nil) != (words == "") || err != nil && !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v", backups, err)
		}
	}
}
