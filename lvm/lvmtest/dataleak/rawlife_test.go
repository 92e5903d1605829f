package dataleak

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// TestRawVolumesReadZeroes: whatever happens in a group, a new raw block volume, or the expansion of one, shows only zeroes.
func TestRawVolumesReadZeroes(t *testing.T) {
	for seed := range uint64(25) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			l := newDirtyLife(t, seed)
			for range 120 {
				l.step(t)
			}
			if l.raw == 0 {
				t.Error("no raw block volume was created")
			}
		})
	}
}

// dirtyLife is a group with tenants and admins at work.
type dirtyLife struct {
	*rand.Rand
	b       hosttest.Fixture
	k       *dirtyKernel
	d       *hosttest.Driver
	dir     string
	volumes []lvm.Volume
	admins  []string
	made    int
	raw     int
}

func newDirtyLife(t *testing.T, seed uint64) *dirtyLife {
	node := hosttest.NewNode()
	l := &dirtyLife{Rand: rand.New(rand.NewPCG(seed, 1)), b: hosttest.OnFake(node), k: newDirtyKernel(node), dir: t.TempDir()}
	l.d = l.k.start(t, l.dir)
	return l
}

func (l *dirtyLife) step(t *testing.T) {
	t.Helper()
	switch l.IntN(16) {
	case 0, 1, 2, 3, 4:
		l.create(t)
	case 5, 6, 7, 8:
		l.delete(t)
	case 9, 10:
		l.extend(t)
	case 11:
		l.d.WaitWiped(t)
	case 12:
		l.admin(t)
	case 13:
		l.pvmove(t)
	case 14:
		hosttest.Must(t, l.d.Close(t.Context()))
		if l.IntN(2) == 0 {
			l.admin(t)
		}
		l.d = l.k.start(t, l.dir)
	case 15:
		l.addDisk()
	}
}

func (l *dirtyLife) create(t *testing.T) {
	t.Helper()
	l.made++
	spec := l.b.Spec(fmt.Sprintf("v%d", l.made), lvm.Bytes(1+l.IntN(8))*lvmtest.ExtentSize)
	if n := l.IntN(2 * len(hosttest.Shapes)); n < len(hosttest.Shapes) {
		spec.Class = l.b.In(hosttest.Shapes[n].Class)
	}
	if l.IntN(4) == 0 {
		spec.Class.Wipe = lvm.WipeNone
	}
	spec.Block = l.IntN(2) == 0
	v, err := l.d.Create(t.Context(), spec)
	if lvm.KindOf(err) == lvm.KindInsufficientCapacity {
		return
	}
	hosttest.Must(t, err)
	if spec.Block {
		l.raw++
		if n := l.k.shows(v.ID.LV, nil); n > 0 {
			t.Fatalf("%s, a raw block volume of the layout %s, shows %d extents that are not zero", spec.Name, spec.Class.Layout, n)
		}
	}
	l.k.write(v.ID.LV)
	l.volumes = append(l.volumes, v)
}

// pop removes one of the volumes from the list.
func (l *dirtyLife) pop() (lvm.Volume, bool) {
	if len(l.volumes) == 0 {
		return lvm.Volume{}, false
	}
	i := l.IntN(len(l.volumes))
	v := l.volumes[i]
	l.volumes = slices.Delete(l.volumes, i, i+1)
	return v, true
}

func (l *dirtyLife) delete(t *testing.T) {
	t.Helper()
	if v, any := l.pop(); any {
		hosttest.Must(t, l.d.Delete(t.Context(), v.ID))
	}
}

func (l *dirtyLife) extend(t *testing.T) {
	t.Helper()
	v, any := l.pop()
	if !any {
		return
	}
	before := l.k.content(v.ID.LV)
	extend := l.d.Extend // a tag marks a raw block volume
	untagged := !v.Block && l.IntN(3) == 0
	if untagged {
		extend = l.d.ExtendBlock // without the tag
	}
	now, err := extend(t.Context(), v.ID, v.Size+lvm.Bytes(1+l.IntN(5))*lvmtest.ExtentSize, 0)
	if lvm.KindOf(err) == lvm.KindOutOfRange {
		l.volumes = append(l.volumes, v)
		return
	}
	hosttest.Must(t, err)
	if v.Block || untagged {
		if n := l.k.shows(v.ID.LV, before); n > 0 {
			t.Fatalf("%s was extended by %d extents that are not zero", v.Name, n)
		}
	}
	l.k.write(v.ID.LV)
	l.volumes = append(l.volumes, now)
}

// admin creates or removes an unmanaged volume, removes a managed one, or creates and removes a large one at once.
func (l *dirtyLife) admin(t *testing.T) {
	t.Helper()
	switch n := l.IntN(4); {
	case n == 3:
		g := l.b.ReadGroup(t)
		pv := g.PVs[l.IntN(len(g.PVs))]
		if len(pv.Free) == 0 {
			return
		}
		r := pv.Free[0]
		l.b.Admin(t, "lvcreate", "-y", "-l", fmt.Sprint(r.Count), "-n", "visitor", l.b.Group, fmt.Sprintf("%s:%d-%d", pv.Device, r.Start, r.Start+r.Count-1))
		l.k.write("visitor")
		l.b.Admin(t, "lvremove", "-y", l.b.Group+"/visitor")
	case n == 0 && len(l.admins) > 0:
		l.b.Admin(t, "lvremove", "-y", l.b.Group+"/"+l.admins[0])
		l.admins = l.admins[1:]
	case n == 1:
		if v, any := l.pop(); any {
			l.b.Admin(t, "lvremove", "-y", l.b.Group+"/"+v.ID.LV)
		}
	default:
		l.made++
		name := fmt.Sprintf("admin%d", l.made)
		l.b.Admin(t, "lvcreate", "-y", "-l", "1", "-n", name, l.b.Group)
		l.k.write(name)
		l.admins = append(l.admins, name)
	}
}

// pvmove moves the extents of one run to another, which takes three commits.
func (l *dirtyLife) pvmove(t *testing.T) {
	t.Helper()
	l.d.WaitWiped(t)
	pvs := l.k.node.Group(l.b.Group).PVs
	l.k.node.Change(l.b.Group, func(g *lvm.Group) {
		for i := range g.LVs {
			s := &g.LVs[i].Segments[0]
			if len(s.Areas) != 1 || s.Areas[0].PV == "" || l.IntN(3) > 0 {
				continue
			}
			from, to := s.Areas[0], freeRun(pvs, s.Extents)
			if to == nil {
				continue
			}
			l.k.mu.Lock()
			for o := range s.Extents {
				l.k.zero[place{to.PV, to.Start + o}] = l.k.zero[place{from.PV, from.Start + o}]
			}
			l.k.mu.Unlock()
			s.Areas = []lvm.Area{*to}
			g.Seqno += 3
			return
		}
	})
}

func freeRun(pvs []lvm.PV, extents lvm.Extents) *lvm.Area {
	for _, pv := range pvs {
		for _, r := range pv.Free {
			if r.Count >= extents {
				return &lvm.Area{PV: pv.UUID, Start: r.Start}
			}
		}
	}
	return nil
}

// addDisk adds a disk with old data.
func (l *dirtyLife) addDisk() {
	l.k.node.Change(l.b.Group, func(g *lvm.Group) {
		if n := len(g.PVs); n < 9 {
			g.PVs = append(g.PVs, lvm.PV{UUID: fmt.Sprintf("LATER%d-aaaa-AAAA-aaaa-AAAA-aaaa-AAAAAA", n), Device: fmt.Sprintf("/dev/later%d", n), Extents: 20, Allocatable: true})
			g.Seqno++
		}
	})
}
