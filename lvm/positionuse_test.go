package lvm

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDeviceOfAnotherVolumesContent: a device with a volume's UUID is that volume only if it is made of disks.
func TestDeviceOfAnotherVolumesContent(t *testing.T) {
	for what, c := range map[string]struct {
		below string
		make  func(s *sysStack)
		want  bool
	}{
		"a disk":                 {"sda1", func(*sysStack) {}, true},
		"a RAID's legs":          {"dm-7", func(s *sysStack) { s.mapper("dm-7", "LVM-abcleg", "sda1") }, true},
		"dm-crypt on a disk":     {"dm-7", func(s *sysStack) { s.mapper("dm-7", "CRYPT-x", "sda1") }, true},
		"a disk that was pulled": {"dm-7", func(s *sysStack) { s.mapper("dm-7", "x") }, true},
		"a raw block volume":     {"loop0", func(s *sysStack) { s.virtual("loop0", 7) }, false},
		"legs on a raw block volume": {"dm-7", func(s *sysStack) {
			s.virtual("loop0", 7)
			s.mapper("dm-7", "LVM-evilleg", "loop0")
		}, false},
		"dm-crypt on a volume": {"dm-7", func(s *sysStack) { s.mapper("dm-7", "CRYPT-x", "dm-0") }, false},
	} {
		s := newSysStack(t)
		c.make(s)
		s.mapper("dm-9", "LVM-aavictim", c.below)
		must(t, os.Symlink(filepath.Join(s.sys, "class/block"), filepath.Join(s.sys, "block")))
		h := NewHostOn(Config{}, Machine{Kernel: kernel{sys: s.sys, proc: s.proc, dev: s.dev}})
		if c.below == "loop0" {
			must(t, os.RemoveAll(filepath.Join(s.dev, "loop0"))) // it cannot even be asked
		}
		path, active, err := h.Device(ID{VG: "a-a", LV: "x"}, "victim")
		if active != c.want || (path != "") != c.want || (err == nil) != c.want {
			t.Errorf("on %s: %q, %v, %v", what, path, active, err)
		}
		if !c.want && KindOf(err) != KindConflict {
			t.Errorf("on %s: %v", what, err)
		}
	}
}

// TestLVMIsGivenItsDevices: no command is run that would look at every device of the node.
func TestLVMIsGivenItsDevices(t *testing.T) {
	runner := &oneRunner{}
	h := NewHostOn(Config{}, Machine{Runner: runner, Kernel: runner, Reader: &scripted{states: []State{{}}}})
	lost := Group{Name: "vg", PVs: []PV{{UUID: "p", Missing: true}}}
	for _, argv := range [][]string{onDevices("lvchange", lost), {"fullreport"}, {"vgs", "--devices"}, {"vgs", "--devices", ","}} {
		if _, err := h.runLVM(t.Context(), argv); err == nil || runner.argv != nil {
			t.Errorf("%q is run: %v", argv, err)
		}
	}
	if s, err := h.report(t.Context(), nil); err != nil || len(s.Groups) > 0 || runner.argv != nil {
		t.Errorf("a report on no devices: %+v, %v, %q", s, err, runner.argv)
	}
	_, _ = h.report(t.Context(), []string{"/dev/sda", "/dev/sdb"})
	if len(runner.argv) < 3 || runner.argv[1] != "--devices" || runner.argv[2] != "/dev/sda,/dev/sdb" {
		t.Errorf("a report on two: %q", runner.argv)
	}
}

// TestNothingIsAskedOfLVMBlindly: without a list of devices there is no reading, and no empty one.
func TestNothingIsAskedOfLVMBlindly(t *testing.T) {
	report := &scripted{states: []State{{Groups: []Group{{UUID: "2", Name: "evil"}}}}}
	for _, off := range []string{"", "they differ"} {
		r := &checkedReader{direct: &scripted{states: []State{{}}, errs: errors.New("no sysfs")}, report: report.onDevices, off: off}
		if s, err := r.Read(t.Context()); err == nil || len(s.Groups) > 0 || report.reads > 0 {
			t.Errorf("%+v, %v", s, err)
		}
	}
}

// TestOnVolumes: what the node itself makes of the content of volumes is told, and nothing that is a volume of a disk's group.
func TestOnVolumes(t *testing.T) {
	s := newSysStack(t)
	must(t, os.Symlink(filepath.Join(s.sys, "class/block"), filepath.Join(s.sys, "block")))
	k := kernel{sys: s.sys, proc: s.proc, dev: s.dev}
	s.virtual("md0", 9, "sda")
	s.attribute(t, "md0", "md/level", "raid1\n")
	if list, err := k.OnVolumes(); err != nil || len(list) > 0 {
		t.Errorf("on a node where nothing is wrong: %q, %v", list, err)
	}
	s.mapper("dm-7", "CRYPT-LUKS2-x", "dm-0") // a tenant's own, or the driver's
	s.mapper("dm-8", "LVM-evil", "dm-7")
	s.virtual("md127", 9, "dm-0", "dm-1")
	s.attribute(t, "md127", "md/level", "raid1\n")
	list, err := k.OnVolumes()
	slices.Sort(list)
	if err != nil || len(list) != 2 || !strings.Contains(list[0], "logical volume (dm-8)") || !strings.Contains(list[1], "RAID (md127)") {
		t.Errorf("%q, %v", list, err)
	}
}
