package ondisk

import (
	"path/filepath"
	"strings"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
)

// Kernel implements lvm.Kernel: dm.Kernel, and what needs the positions of devices.
type Kernel struct{ dm.Kernel }

func (k Kernel) positions() Positions { return Positions{Sys: k.Sys, Proc: k.Proc, Dev: k.Dev} }

// Device finds the device. It refuses one on another volume's content: a tenant who writes a volume group to a volume chooses
// its UUIDs, and a node that activates it gives those UUIDs to the kernel.
func (k Kernel) Device(uuid string) (string, bool, error) {
	path, active, err := k.Kernel.Device(uuid)
	if err != nil || !active {
		return path, active, err
	}
	switch pos := k.positions().OfVolume(filepath.Base(path)); {
	case pos.MadeOf > MadeOfVolume:
		return "", false, lvm.Errorf(lvm.KindConflict, "device %s has this volume's UUID, but the driver cannot confirm that it is the volume: %s (dmsetup ls --tree shows more)", path, pos.Reason)
	case pos.MadeOf == MadeOfVolume:
		return "", false, lvm.Errorf(lvm.KindConflict, "device %s has this volume's UUID but is not the volume: %s; find what activated it (dmsetup ls --tree), and remove it (dmsetup remove)", path, pos.Reason)
	}
	return path, true, nil
}

// DisksBelow implements lvm.Kernel. A failed disk whose capacity the kernel sets to 0 counts as removed beside others: no reading of the disks
// finds it.
func (k Kernel) DisksBelow(path string) (below, removed []string, err error) {
	below, removed, err = k.positions().DevicesBelow(filepath.Base(path))
	var empty, others []string
	for _, name := range below {
		if k.isEmpty(name) {
			empty = append(empty, name)
		} else {
			others = append(others, name)
		}
	}
	if len(others) > 0 { // else nothing would confirm the device
		below, removed = others, append(removed, empty...)
	}
	return k.paths(below), removed, err
}

// paths replaces names by the paths of their device nodes.
func (k Kernel) paths(names []string) []string {
	for i, name := range names {
		names[i] = filepath.Join(k.Dev, strings.ReplaceAll(name, "!", "/")) // the kernel's name of a node in a folder
	}
	return names
}

func (k Kernel) isEmpty(name string) bool {
	size, err := dm.Attribute(k.Sys, name, "size")
	return err == nil && size == "0"
}
