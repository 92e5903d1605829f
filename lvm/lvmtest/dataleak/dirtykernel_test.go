package dataleak

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// place is one extent of a disk.
type place struct {
	pv     string
	extent lvm.Extents
}

// dirtyKernel is a kernel that knows which extents are zero: all others hold written data, or a disk's old data.
type dirtyKernel struct {
	lvm.Kernel
	node *lvmtest.Node
	fail error // of the next Zero

	mu     sync.Mutex
	zero   map[place]bool
	zeroed lvm.Extents // how many Zero zeroed
}

func newDirtyKernel(node *lvmtest.Node) *dirtyKernel {
	return &dirtyKernel{Kernel: node.Kernel(), node: node, zero: map[place]bool{}}
}

// start starts a driver that saves what it knows in a directory.
func (k *dirtyKernel) start(t testing.TB, dir string) *hosttest.Driver {
	t.Helper()
	return hosttest.StartOn(t, k.node, lvm.Config{BackupDir: dir, CacheTTL: -1, EmptyPoolsFor: time.Nanosecond}, lvm.Machine{Kernel: k})
}

// extentsAt returns which extents of a volume are at each place, independently of the driver's code for that.
func extentsAt(g lvm.Group, lv lvm.LV) map[place][]lvm.Extents {
	all := map[place][]lvm.Extents{}
	for _, s := range lv.Segments {
		n := lvm.Extents(len(s.Areas))
		data := map[string]lvm.Extents{"linear": 1, "striped": n, "raid1": 1, "raid5": n - 1, "raid6": n - 2, "raid10": n / 2}[s.Type]
		for _, a := range s.Areas {
			for o := range s.Extents / data {
				at := place{a.PV, a.Start + o}
				if a.LV != "" {
					at = placeOf(g, a.LV, o)
				}
				for e := range data {
					all[at] = append(all[at], s.Start+o*data+e)
				}
			}
		}
	}
	return all
}

// placeOf returns the place of an extent of a linear volume.
func placeOf(g lvm.Group, name string, extent lvm.Extents) place {
	for _, s := range volumeNamed(g, name).Segments {
		if extent >= s.Start && extent < s.Start+s.Extents {
			return place{s.Areas[0].PV, s.Areas[0].Start + extent - s.Start}
		}
	}
	panic(fmt.Sprintf("%s has no extent %d", name, extent))
}

func (k *dirtyKernel) Zero(ctx context.Context, d lvm.Device, from, to lvm.Bytes, done func(lvm.Bytes)) error {
	if err := k.Kernel.Zero(ctx, d, from, to, nil); err != nil {
		return err
	}
	if k.fail != nil {
		return k.fail
	}
	groups := k.node.Groups()
	k.mu.Lock()
	for _, g := range groups {
		for _, lv := range g.LVs {
			if lvmtest.DeviceUUID(string(g.UUID), lv.UUID) != d.UUID {
				continue
			}
			for at, extents := range extentsAt(g, lv) {
				if !slices.ContainsFunc(extents, func(e lvm.Extents) bool {
					return lvm.Bytes(e)*lvmtest.ExtentSize < from || lvm.Bytes(e+1)*lvmtest.ExtentSize > to
				}) {
					k.zero[at] = true
					k.zeroed++
				}
			}
		}
	}
	k.mu.Unlock()
	if done != nil {
		done(to)
	}
	return nil
}

// content returns the places of a volume.
func (k *dirtyKernel) content(name string) map[place][]lvm.Extents {
	g := k.node.Group("vg-test")
	return extentsAt(g, volumeNamed(g, name))
}

// volumeNamed returns a volume; an absent one has no extents.
func volumeNamed(g lvm.Group, name string) lvm.LV {
	for _, lv := range g.LVs {
		if lv.Name == name {
			return lv
		}
	}
	return lvm.LV{}
}

// write writes to all extents of a volume, and to RAID's metadata.
func (k *dirtyKernel) write(name string) {
	g := k.node.Group("vg-test")
	written := []lvm.LV{volumeNamed(g, name)}
	for _, s := range written[0].Segments {
		for _, a := range s.Metadata {
			written = append(written, volumeNamed(g, a.LV))
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, lv := range written {
		for at := range extentsAt(g, lv) {
			delete(k.zero, at)
		}
	}
}

// shows counts the places of a volume that are not zero, without those that it had before.
func (k *dirtyKernel) shows(name string, before map[place][]lvm.Extents) (n int) {
	content := k.content(name)
	k.mu.Lock()
	defer k.mu.Unlock()
	for at := range content {
		if _, had := before[at]; !had && !k.zero[at] {
			n++
		}
	}
	return n
}

func (k *dirtyKernel) count() lvm.Extents {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.zeroed
}
