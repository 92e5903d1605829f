package lvm

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Devices that LVM made are not looked at again, others of the same name are.
func TestScanner(t *testing.T) {
	node := newTestNode(t)
	node.add(t, "sda", 64<<20, nil)
	node.add(t, "dm-0", 64<<20, nil)
	node.attribute(t, "dm-0", "dm/uuid", "LVM-abc\n")
	var s scanner
	scan := func(want ...string) *blockDevices {
		t.Helper()
		b, err := s.scan(t.Context(), node.sys, node.proc, node.dev)
		must(t, err)
		var names []string
		for _, d := range b.list {
			names = append(names, d.name)
		}
		slices.Sort(names)
		if diff := cmp.Diff(want, names); diff != "" {
			t.Error(diff)
		}
		return b
	}
	if b := scan("sda"); b.stacked {
		t.Error("LVM's own devices are none to be asked for")
	}
	must(t, os.Remove(filepath.Join(node.sys, "class/block/sda/uevent"))) // nobody asks again
	scan("sda")
	again := filepath.Join(node.sys, "class/block/dm-0")
	must(t, os.Rename(again, again+".gone")) // its inode stays in use
	node.add(t, "dm-0", 64<<20, nil)
	node.attribute(t, "dm-0", "dm/uuid", "CRYPT-LUKS2-x\n")
	if b := scan("dm-0", "sda"); !b.stacked || !b.mappers["dm-0"] {
		t.Errorf("%+v", b)
	}
	node.attribute(t, "sda", "size", "100\n")
	scan("dm-0") // too small now
	must(t, os.WriteFile(filepath.Join(node.proc, "partitions"), []byte("major minor  #blocks  name\n\n 8 0 x sda\n"), 0o600))
	if _, err := s.scan(t.Context(), node.sys, node.proc, node.dev); err == nil {
		t.Error("a size that is no number is taken")
	}
}
