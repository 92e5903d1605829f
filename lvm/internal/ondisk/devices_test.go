package ondisk

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// TestScanner: the scanner does not read LVM's devices again, but reads another device of the same name.
func TestScanner(t *testing.T) {
	node := fixture.NewTestNode(t)
	node.Add(t, "sda", 64<<20, nil)
	node.Add(t, "dm-0", 64<<20, nil)
	node.Attribute(t, "dm-0", "dm/uuid", "LVM-abc\n")
	var s scanner
	scan := func(want ...string) *blockDevices {
		t.Helper()
		b, err := s.scan(t.Context(), node.Sys, node.Proc, node.Dev)
		fixture.Must(t, err)
		var names []string
		for _, d := range b.list {
			names = append(names, d.Name)
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
	fixture.Must(t, os.Remove(filepath.Join(node.Sys, "class/block/sda/uevent"))) // the scanner does not read it again
	scan("sda")
	again := filepath.Join(node.Sys, "class/block/dm-0")
	fixture.Must(t, os.Rename(again, again+".gone")) // keeps its inode in use
	node.Add(t, "dm-0", 64<<20, nil)
	node.Attribute(t, "dm-0", "dm/uuid", "CRYPT-LUKS2-x\n")
	if b := scan("dm-0", "sda"); !b.stacked || !b.mappers["dm-0"] {
		t.Errorf("%+v", b)
	}
	node.Attribute(t, "sda", "size", "100\n")
	scan("dm-0") // too small now
	fixture.Must(t, os.WriteFile(filepath.Join(node.Proc, "partitions"), []byte("major minor  #blocks  name\n\n 8 0 x sda\n"), 0o600))
	if _, err := s.scan(t.Context(), node.Sys, node.Proc, node.Dev); err == nil {
		t.Error("a size that is no number is taken")
	}
}

// TestScannerSkipsDeviceBeingRemoved: device-mapper returns EINVAL during a removal, as the kernel does for lo's speed.
func TestScannerSkipsDeviceBeingRemoved(t *testing.T) {
	node := fixture.NewTestNode(t)
	node.Add(t, "sda", 64<<20, nil)
	node.Add(t, "dm-0", 64<<20, nil)
	node.Attribute(t, "dm-0", "dm/uuid", "")
	uuid := filepath.Join(node.Sys, "class/block/dm-0/dm/uuid")
	fixture.Must(t, errors.Join(os.Remove(uuid), os.Symlink("/sys/class/net/lo/speed", uuid)))
	if _, err := os.ReadFile(uuid); !errors.Is(err, unix.EINVAL) {
		t.Fatalf("lo's speed can be read here: %v", err)
	}
	var s scanner
	b, err := s.scan(t.Context(), node.Sys, node.Proc, node.Dev)
	fixture.Must(t, err)
	if len(b.list) != 1 || b.list[0].Name != "sda" {
		t.Errorf("it lists %+v", b.list)
	}
}

// TestNewDeviceIsRecognisedOnceComplete: a new device has its name before its UUID, and its UUID before it holds a disk.
func TestNewDeviceIsRecognisedOnceComplete(t *testing.T) {
	for uuid, part := range map[string]bool{"LVM-abc\n": false, "mpath-x\n": true, "\n": true} {
		node := fixture.NewTestNode(t)
		node.Add(t, "sda", 64<<20, nil)
		node.Attribute(t, "dm-0", "size", "0\n")
		node.Attribute(t, "dm-0", "dm/uuid", "\n")
		var s scanner
		b, err := s.scan(t.Context(), node.Sys, node.Proc, node.Dev)
		fixture.Must(t, err)
		node.Attribute(t, "dm-0", "dm/uuid", uuid)
		node.Attribute(t, "sda", "holders/dm-0/x", "")
		if got, err := b.component("sda"); err != nil || got != part {
			t.Errorf("with the UUID %q: a part of another device: %v, %v", uuid, got, err)
		}
		fixture.Must(t, os.RemoveAll(filepath.Join(node.Sys, "class/block/dm-0")))
		if got, err := b.component("sda"); err != nil || got {
			t.Errorf("once that is gone: %v, %v", got, err)
		}
	}
}

// TestDiskMissingFromListOfSizes: the kernel returns its list of sizes in pieces, and may omit a device.
func TestDiskMissingFromListOfSizes(t *testing.T) {
	node := fixture.NewTestNode(t)
	node.Add(t, "sda", 64<<20, nil)
	node.Add(t, "loop0", 0, nil)
	whole, err := os.ReadFile(filepath.Join(node.Proc, "partitions"))
	fixture.Must(t, err)
	var s scanner
	for _, text := range []string{"", string(whole), "", ""} {
		fixture.Must(t, os.WriteFile(filepath.Join(node.Proc, "partitions"), []byte(text), 0o600))
		b, err := s.scan(t.Context(), node.Sys, node.Proc, node.Dev)
		fixture.Must(t, err)
		if len(b.list) != 1 || b.list[0].Name != "sda" || b.list[0].Size != 64*lvm.MiB {
			t.Errorf("with the list %q: %+v", text, b.list)
		}
	}
	node.Attribute(t, "sda", "size", "0\n")
	b, err := s.scan(t.Context(), node.Sys, node.Proc, node.Dev)
	fixture.Must(t, err)
	if len(b.list) != 0 {
		t.Errorf("an empty disk is listed: %+v", b.list)
	}
}

// TestDeviceRemovedDuringScan: a device that is removed between the list and its reading is no unreadable disk.
func TestDeviceRemovedDuringScan(t *testing.T) {
	for what, c := range map[string]struct {
		leave  func(entry string) error
		unread int
	}{
		"unplugged":                 {os.RemoveAll, 0},
		"detached":                  {func(entry string) error { return os.WriteFile(filepath.Join(entry, "size"), []byte("0\n"), 0o600) }, 0},
		"there, and without a node": {func(string) error { return nil }, 1},
	} {
		node := fixture.NewTestNode(t)
		node.Plug(t, "testdata/groups/linear")
		node.Add(t, "loop9", 64<<20, nil)
		disks := disksOf(node)
		disks.probe = func(d BlockDevice) probe {
			if d.Name == "loop9" {
				if err := errors.Join(os.Remove(d.Path), c.leave(filepath.Join(node.Sys, "class/block/loop9"))); err != nil {
					t.Error(err)
				}
			}
			return disks.prober().probe(d, probe{})
		}
		state, err := disks.Read(t.Context())
		fixture.Must(t, err)
		if len(state.UnreadDevices) != c.unread || len(state.Groups) != 1 {
			t.Errorf("%s: unread %q, groups %+v", what, state.UnreadDevices, state.Groups)
		}
	}
}
