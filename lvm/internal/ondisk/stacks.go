package ondisk

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
)

// Stacks implements lvm.Kernel. Many volumes share few disks: what one reading finds about a disk counts for all volumes on it.
func (k Kernel) Stacks(volumes []lvm.Device) (lvm.Stacks, error) {
	names, err := dm.ReadNames(filepath.Join(k.Sys, "class/block"))
	if err != nil {
		return lvm.Stacks{}, err
	}
	return k.stacks(volumes, names), nil
}

func (k Kernel) stacks(volumes []lvm.Device, names []string) lvm.Stacks {
	where := k.positions()
	where.walked = map[string]position{}
	f := footings{kernel: k, below: make(map[uint64][]uint64, len(volumes)), disks: map[uint64]string{}}
	for _, v := range volumes {
		f.below[v.Number] = v.Below
	}
	s := lvm.Stacks{Disks: make(map[string][]string, len(volumes)), OnRemovedDisk: map[string]bool{}}
	isVolume := map[string]bool{}
	for _, v := range volumes {
		name := filepath.Base(v.Path)
		isVolume[name] = true
		var at position
		if disks, whole := f.disksOf(nil, v.Below, 0); whole {
			if at = where.all(disks, 0); at.MadeOf == MadeOfDisks {
				s.Disks[v.Path] = k.paths(disks)
			}
		} else {
			at = where.OfVolume(name)
			_, removed, err := k.DisksBelow(v.Path)
			s.OnRemovedDisk[v.Path] = err == nil && len(removed) > 0
		}
		if at.MadeOf == MadeOfVolume {
			s.OnVolumes = append(s.OnVolumes, fmt.Sprintf("the node has activated a logical volume (%s) of a volume group that a user wrote to a volume", name))
		}
	}
	for _, name := range names {
		if !isVolume[name] && where.HasAttribute(name, "md") && where.Walk(name, 0).MadeOf == MadeOfVolume {
			s.OnVolumes = append(s.OnVolumes, fmt.Sprintf("the node has assembled a software RAID (%s) that a user wrote to a volume", name))
		}
	}
	return s
}

// footings finds the disks of volumes by the numbers that device-mapper has: no other device gets the number of a disk that a volume still
// has open.
type footings struct {
	kernel Kernel
	below  map[uint64][]uint64 // of each of LVM's devices
	disks  map[uint64]string   // names; "": removed, or without capacity
}

// disksOf appends the names of the devices that are below these and below all of LVM's devices. whole is false if one of them is absent, or
// none is known.
func (f footings) disksOf(names []string, devices []uint64, depth int) (_ []string, whole bool) {
	if len(devices) == 0 || depth > maxStack {
		return nil, false
	}
	for _, number := range devices {
		whole := true
		if below, ofLVM := f.below[number]; ofLVM {
			names, whole = f.disksOf(names, below, depth+1)
		} else if name := f.disk(number); name != "" {
			names = append(names, name)
		} else {
			whole = false
		}
		if !whole {
			return nil, false
		}
	}
	return names, true
}

func (f footings) disk(number uint64) string {
	name, known := f.disks[number]
	if !known {
		folder, err := os.Readlink(filepath.Join(f.kernel.Sys, "dev/block", dm.FormatNumber(number)))
		if err == nil && !f.kernel.isEmpty(filepath.Base(folder)) {
			name = filepath.Base(folder)
		}
		f.disks[number] = name
	}
	return name
}
