package lvm

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
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

// Of a device that it is just removing, device-mapper says that the question is wrong, as the kernel does of lo's speed.
func TestScannerPassesByWhatIsBeingRemoved(t *testing.T) {
	node := newTestNode(t)
	node.add(t, "sda", 64<<20, nil)
	node.add(t, "dm-0", 64<<20, nil)
	node.attribute(t, "dm-0", "dm/uuid", "")
	uuid := filepath.Join(node.sys, "class/block/dm-0/dm/uuid")
	must(t, errors.Join(os.Remove(uuid), os.Symlink("/sys/class/net/lo/speed", uuid)))
	if _, err := os.ReadFile(uuid); !errors.Is(err, unix.EINVAL) {
		t.Fatalf("lo's speed can be read here: %v", err)
	}
	var s scanner
	b, err := s.scan(t.Context(), node.sys, node.proc, node.dev)
	must(t, err)
	if len(b.list) != 1 || b.list[0].name != "sda" {
		t.Errorf("it lists %+v", b.list)
	}
}

// A device that is being made has its name before its UUID, and its UUID before it holds a disk.
func TestAVolumeInTheMakingIsNoOtherDevice(t *testing.T) {
	for uuid, part := range map[string]bool{"LVM-abc\n": false, "mpath-x\n": true, "\n": true} {
		node := newTestNode(t)
		node.add(t, "sda", 64<<20, nil)
		node.attribute(t, "dm-0", "size", "0\n")
		node.attribute(t, "dm-0", "dm/uuid", "\n")
		var s scanner
		b, err := s.scan(t.Context(), node.sys, node.proc, node.dev)
		must(t, err)
		node.attribute(t, "dm-0", "dm/uuid", uuid)
		node.attribute(t, "sda", "holders/dm-0/x", "")
		if got, err := b.component("sda"); err != nil || got != part {
			t.Errorf("with the UUID %q: a part of another device: %v, %v", uuid, got, err)
		}
		must(t, os.RemoveAll(filepath.Join(node.sys, "class/block/dm-0")))
		if got, err := b.component("sda"); err != nil || got {
			t.Errorf("once that is gone: %v, %v", got, err)
		}
	}
}

// The kernel's list of sizes is read in pieces, and may lack a device.
func TestADiskThatPartitionsLacks(t *testing.T) {
	node := newTestNode(t)
	node.add(t, "sda", 64<<20, nil)
	node.add(t, "loop0", 0, nil)
	whole, err := os.ReadFile(filepath.Join(node.proc, "partitions"))
	must(t, err)
	var s scanner
	for _, text := range []string{"", string(whole), "", ""} {
		must(t, os.WriteFile(filepath.Join(node.proc, "partitions"), []byte(text), 0o600))
		b, err := s.scan(t.Context(), node.sys, node.proc, node.dev)
		must(t, err)
		if len(b.list) != 1 || b.list[0].name != "sda" || b.list[0].size != 64*MiB {
			t.Errorf("with the list %q: %+v", text, b.list)
		}
	}
	node.attribute(t, "sda", "size", "0\n")
	b, err := s.scan(t.Context(), node.sys, node.proc, node.dev)
	must(t, err)
	if len(b.list) != 0 {
		t.Errorf("an empty disk is listed: %+v", b.list)
	}
}

// What goes away between the list and its reading is gone, and does not count as a disk that cannot be read.
func TestGoneMeanwhile(t *testing.T) {
	for what, c := range map[string]struct {
		leave  func(entry string) error
		unread int
	}{
		"unplugged":                 {os.RemoveAll, 0},
		"detached":                  {func(entry string) error { return os.WriteFile(filepath.Join(entry, "size"), []byte("0\n"), 0o600) }, 0},
		"there, and without a node": {func(string) error { return nil }, 1},
	} {
		node := newTestNode(t)
		node.plug(t, "testdata/groups/linear")
		node.add(t, "loop9", 64<<20, nil)
		disks := disksOf(node)
		disks.probe = func(d blockDevice) probe {
			if d.name == "loop9" {
				if err := errors.Join(os.Remove(d.path), c.leave(filepath.Join(node.sys, "class/block/loop9"))); err != nil {
					t.Error(err)
				}
			}
			return disks.prober().probe(d, probe{})
		}
		state, err := disks.Read(t.Context())
		must(t, err)
		if len(state.Unread) != c.unread || len(state.Groups) != 1 {
			t.Errorf("%s: unread %q, groups %+v", what, state.Unread, state.Groups)
		}
	}
}
