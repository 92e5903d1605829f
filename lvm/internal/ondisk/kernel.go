package ondisk

import (
	"fmt"
	"path/filepath"
	"slices"
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
	empty := func(name string) bool {
		size, err := dm.Attribute(k.Sys, name, "size")
		return err == nil && size == "0"
	}
	if slices.ContainsFunc(below, func(name string) bool { return !empty(name) }) { // else nothing would confirm the device
		removed = append(removed, slices.DeleteFunc(slices.Clone(below), func(name string) bool { return !empty(name) })...)
		below = slices.DeleteFunc(below, empty)
	}
	for i, name := range below {
		below[i] = filepath.Join(k.Dev, strings.ReplaceAll(name, "!", "/")) // the kernel's name of a node in a folder
	}
	return below, removed, err
}

// DevicesOnVolumes implements lvm.Kernel. Many volumes share few disks, so it determines the position of each disk once.
func (k Kernel) DevicesOnVolumes(volumes []lvm.Device) ([]string, error) {
	names, err := dm.ReadNames(filepath.Join(k.Sys, "class/block"))
	if err != nil {
		return nil, err
	}
	where := k.positions()
	where.walked = map[string]position{}
	var list []string
	isVolume := map[string]bool{}
	for _, v := range volumes {
		name := filepath.Base(v.Path)
		isVolume[name] = true
		if where.OfVolume(name).MadeOf == MadeOfVolume {
			list = append(list, fmt.Sprintf("the node has activated a logical volume (%s) of a volume group that a user wrote to a volume", name))
		}
	}
	for _, name := range names {
		if !isVolume[name] && where.HasAttribute(name, "md") && where.Walk(name, 0).MadeOf == MadeOfVolume {
			list = append(list, fmt.Sprintf("the node has assembled a software RAID (%s) that a user wrote to a volume", name))
		}
	}
	return list, nil
}
