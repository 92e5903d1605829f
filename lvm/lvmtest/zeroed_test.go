package lvmtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// place is one extent of a disk.
type place struct {
	pv     string
	extent lvm.Extents
}

// dirtyKernel is a kernel that knows which extents are zero: all others hold written data, or a disk's old data.
type dirtyKernel struct {
	kernel
	fail error // of the next Zero

	// Under the node's lock:
	zero   map[place]bool
	zeroed lvm.Extents // how many Zero zeroed
}

func newDirtyKernel(node *Node) *dirtyKernel {
	return &dirtyKernel{kernel: kernel{node}, zero: map[place]bool{}}
}

// start starts a driver that saves what it knows in a directory.
func (k *dirtyKernel) start(t testing.TB, dir string) *Driver {
	t.Helper()
	d := &Driver{}
	cfg := d.config(lvm.Config{BackupDir: dir, CacheTTL: -1, EmptyPoolsFor: time.Nanosecond})
	d.Host = k.node.hostOn(cfg, lvm.Machine{Kernel: k})
	must(t, d.Start(context.Background()))
	t.Cleanup(func() { must(t, d.Close(context.Background())) })
	return d
}

// lie returns which extents of a volume are at each place, independently of the driver's code for that.
func (g *group) lie(lv *lvm.LV) map[place][]lvm.Extents {
	all := map[place][]lvm.Extents{}
	for _, s := range lv.Segments {
		n := lvm.Extents(len(s.Areas))
		data := map[string]lvm.Extents{"linear": 1, "striped": n, "raid1": 1, "raid5": n - 1, "raid6": n - 2, "raid10": n / 2}[s.Type]
		for _, a := range s.Areas {
			for o := range s.Extents / data {
				at := place{a.PV, a.Start + o}
				if a.LV != "" {
					at = g.at(a.LV, o)
				}
				for e := range data {
					all[at] = append(all[at], s.Start+o*data+e)
				}
			}
		}
	}
	return all
}

// at returns the place of an extent of a linear volume.
func (g *group) at(name string, extent lvm.Extents) place {
	for _, s := range g.find(name).Segments {
		if extent >= s.Start && extent < s.Start+s.Extents {
			return place{s.Areas[0].PV, s.Areas[0].Start + extent - s.Start}
		}
	}
	panic(fmt.Sprintf("%s has no extent %d", name, extent))
}

func (k *dirtyKernel) Zero(ctx context.Context, d lvm.Device, from, to lvm.Bytes, done func(lvm.Bytes)) error {
	if err := k.kernel.Zero(ctx, d, from, to, nil); err != nil {
		return err
	}
	if k.fail != nil {
		return k.fail
	}
	k.node.mu.Lock()
	for _, g := range k.node.groups {
		for i := range g.LVs {
			if deviceUUID(string(g.UUID), g.LVs[i].UUID) != d.UUID {
				continue
			}
			for at, extents := range g.lie(&g.LVs[i]) {
				if !slices.ContainsFunc(extents, func(e lvm.Extents) bool {
					return lvm.Bytes(e)*ExtentSize < from || lvm.Bytes(e+1)*ExtentSize > to
				}) {
					k.zero[at] = true
					k.zeroed++
				}
			}
		}
	}
	k.node.mu.Unlock()
	if done != nil {
		done(to)
	}
	return nil
}

// content returns the places of a volume.
func (k *dirtyKernel) content(name string) map[place][]lvm.Extents {
	k.node.mu.Lock()
	defer k.node.mu.Unlock()
	g := k.node.group("vg-test")
	lv := g.find(name)
	if lv == nil {
		return nil
	}
	return g.lie(lv)
}

// write writes to all extents of a volume, and to RAID's metadata.
func (k *dirtyKernel) write(name string) {
	k.node.mu.Lock()
	defer k.node.mu.Unlock()
	g := k.node.group("vg-test")
	lv := g.find(name)
	for at := range g.lie(lv) {
		delete(k.zero, at)
	}
	for _, s := range lv.Segments {
		for _, a := range s.Metadata {
			for at := range g.lie(g.find(a.LV)) {
				delete(k.zero, at)
			}
		}
	}
}

// shows counts the places of a volume that are not zero, without those that it had before.
func (k *dirtyKernel) shows(name string, before map[place][]lvm.Extents) (n int) {
	content := k.content(name)
	k.node.mu.Lock()
	defer k.node.mu.Unlock()
	for at := range content {
		if _, had := before[at]; !had && !k.zero[at] {
			n++
		}
	}
	return n
}

func (k *dirtyKernel) count() lvm.Extents {
	k.node.mu.Lock()
	defer k.node.mu.Unlock()
	return k.zeroed
}

func (b Fixture) raw(name string, extents lvm.Extents) lvm.Spec {
	spec := b.spec(name, lvm.Bytes(extents)*ExtentSize)
	spec.Block = true
	return spec
}

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
	b       Fixture
	k       *dirtyKernel
	d       *Driver
	dir     string
	volumes []lvm.Volume
	admins  []string
	made    int
	raw     int
}

func newDirtyLife(t *testing.T, seed uint64) *dirtyLife {
	node := newNode()
	l := &dirtyLife{Rand: rand.New(rand.NewPCG(seed, 1)), b: fakeFixture(node), k: newDirtyKernel(node), dir: t.TempDir()}
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
		l.d.waitWiped(t)
	case 12:
		l.admin(t)
	case 13:
		l.pvmove(t)
	case 14:
		must(t, l.d.Close(t.Context()))
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
	spec := l.b.spec(fmt.Sprintf("v%d", l.made), lvm.Bytes(1+l.IntN(8))*ExtentSize)
	if n := l.IntN(2 * len(shapes)); n < len(shapes) {
		spec.Class = l.b.in(shapes[n].class)
	}
	if l.IntN(4) == 0 {
		spec.Class.Wipe = lvm.WipeNone
	}
	spec.Block = l.IntN(2) == 0
	v, err := l.d.Create(t.Context(), spec)
	if lvm.KindOf(err) == lvm.KindInsufficientCapacity {
		return
	}
	must(t, err)
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
		must(t, l.d.Delete(t.Context(), v.ID))
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
		extend = l.d.ExtendBlock // without the tag, from an earlier release
	}
	now, err := extend(t.Context(), v.ID, v.Size+lvm.Bytes(1+l.IntN(5))*ExtentSize, 0)
	if lvm.KindOf(err) == lvm.KindOutOfRange {
		l.volumes = append(l.volumes, v)
		return
	}
	must(t, err)
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
		g := l.b.group(t)
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
	l.d.waitWiped(t)
	l.k.node.Change(l.b.Group, func(*lvm.Group) {
		g := l.k.node.group(l.b.Group)
		for i := range g.LVs {
			s := &g.LVs[i].Segments[0]
			if len(s.Areas) != 1 || s.Areas[0].PV == "" || l.IntN(3) > 0 {
				continue
			}
			from, to := s.Areas[0], freeRun(g, s.Extents)
			if to == nil {
				continue
			}
			for o := range s.Extents {
				l.k.zero[place{to.PV, to.Start + o}] = l.k.zero[place{from.PV, from.Start + o}]
			}
			s.Areas = []lvm.Area{*to}
			for range 3 {
				g.commit()
			}
			return
		}
	})
}

func freeRun(g *group, extents lvm.Extents) *lvm.Area {
	for _, pv := range g.PVs {
		for _, r := range g.free(pv) {
			if r.Count >= extents {
				return &lvm.Area{PV: pv.UUID, Start: r.Start}
			}
		}
	}
	return nil
}

// addDisk adds a disk with old data.
func (l *dirtyLife) addDisk() {
	l.k.node.Change(l.b.Group, func(*lvm.Group) {
		g := l.k.node.group(l.b.Group)
		if len(g.PVs) < 9 {
			g.PVs = append(g.PVs, lvm.PV{UUID: l.k.node.uuid(), Device: fmt.Sprintf("/dev/later%d", len(g.PVs)), Extents: 20, Allocatable: true})
			g.commit()
		}
	})
}

// known makes the driver know that as many extents as a deleted volume had are zero.
func known(t *testing.T, b Fixture, d *Driver, extents lvm.Extents) {
	t.Helper()
	v := d.create(t, b.spec("known", lvm.Bytes(extents)*ExtentSize))
	must(t, d.Delete(t.Context(), v.ID))
	d.waitWiped(t)
}

// TestKnownZeroesCostNothing: a raw block volume on extents that the driver has zeroed costs no more than another volume to
// create and extend, also after a restart; and a file system's volume never costs more, whatever its extents hold.
func TestKnownZeroesCostNothing(t *testing.T) {
	node := newNode()
	b, k, dir := fakeFixture(node), newDirtyKernel(node), t.TempDir()
	d := k.start(t, dir)
	d.counted(t, "a file system's volume on unknown extents", 1, func() { d.create(t, b.spec("fs", 4*ExtentSize)) })
	known(t, b, d, 40)
	must(t, d.Close(t.Context()))
	d = k.start(t, dir)
	before := k.count()
	var v lvm.Volume
	d.counted(t, "a raw block volume", 1, func() { v = d.create(t, b.raw("raw", 10)) })
	d.counted(t, "its expansion", 1, func() {
		var err error
		v, err = d.Extend(t.Context(), v.ID, 20*ExtentSize, 0)
		must(t, err)
	})
	if n := k.count() - before; n > 0 {
		t.Errorf("the driver zeroed %d extents that were zero", n)
	}
	if n := k.shows(v.ID.LV, nil); n > 0 {
		t.Errorf("%d extents are not zero", n)
	}
	d.counted(t, "a volume on extents that an admin vouches for", 1, func() {
		node.Change(b.Group, func(*lvm.Group) {
			g := node.group(b.Group)
			g.Tags = append(g.Tags, fmt.Sprintf("nodelvm.zeroed=%d", g.Seqno+1))
			g.commit()
		})
		d.create(t, b.raw("vouched", 60))
	})
	if n := k.count() - before; n > 0 {
		t.Errorf("the driver zeroed %d extents that an admin vouched for", n)
	}
}

// TestKnownZeroesOfUnstartedHost: a Host that is not started knows what it has zeroed itself, and does not change the files.
func TestKnownZeroesOfUnstartedHost(t *testing.T) {
	node := newNode()
	b, k, dir := fakeFixture(node), newDirtyKernel(node), t.TempDir()
	d := node.hostOn(lvm.Config{Cluster: Cluster, BackupDir: dir, CacheTTL: -1}, lvm.Machine{Kernel: k})
	v, err := d.Create(t.Context(), b.raw("raw", 4))
	must(t, err)
	if v, err = d.Extend(t.Context(), v.ID, 8*ExtentSize, 0); err != nil || k.shows(v.ID.LV, nil) > 0 {
		t.Errorf("it is %+v, %v", v, err)
	}
	must(t, d.Close(t.Context()))
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("it wrote %v, %v", files, err)
	}
}

// TestUnknownExtentsAreZeroedOnce: the driver zeroes only the unknown extents of a raw block volume, before it returns the volume, with
// one more process.
func TestUnknownExtentsAreZeroedOnce(t *testing.T) {
	node := newNode()
	b, k := fakeFixture(node), newDirtyKernel(node)
	d := k.start(t, t.TempDir())
	var v lvm.Volume
	d.counted(t, "a raw block volume on unknown extents", 2, func() { v = d.create(t, b.raw("raw", 10)) })
	if n := k.count(); n != 10 || v.State != lvm.StateReady || !v.Block {
		t.Errorf("the driver zeroed %d extents of %+v", n, v)
	}
	if tags := node.stateTags(b.Group); tags["ready"] != 1 {
		t.Errorf("tags on the disks when Create returns: %v", tags)
	}
	d.counted(t, "the same again", 0, func() {
		if again := d.create(t, b.raw("raw", 10)); again != v {
			t.Errorf("%+v, and then %+v", v, again)
		}
	})
	before := k.count()
	d.counted(t, "its expansion: allocate the extents, free them, and extend the volume", 3, func() {
		_, err := d.Extend(t.Context(), v.ID, 15*ExtentSize, 0)
		must(t, err)
	})
	if n := k.count() - before; n != 5 {
		t.Errorf("the driver zeroed %d extents for an expansion by 5", n)
	}
	d.waitWiped(t)
	if names := b.names(t); !slices.Equal(names, []string{v.ID.LV}) {
		t.Errorf("the group has %q", names)
	}
}

func (b Fixture) names(t testing.TB) (names []string) {
	t.Helper()
	for _, lv := range b.group(t).LVs {
		names = append(names, lv.Name)
	}
	return names
}

// TestZeroingFails: the driver never returns a raw block volume that it cannot zero, and removes it.
func TestZeroingFails(t *testing.T) {
	node := newNode()
	b, k := fakeFixture(node), newDirtyKernel(node)
	d := k.start(t, t.TempDir())
	k.fail = fmt.Errorf("input/output error")
	_, err := d.Create(t.Context(), b.raw("raw", 10))
	wantKind(t, "a raw block volume on a bad disk", err, lvm.KindInternal)
	if err == nil || !strings.Contains(err.Error(), "may hold other users' data") {
		t.Errorf("the error is %v", err)
	}
	if names := b.names(t); len(names) > 0 {
		t.Errorf("%q is left", names)
	}
}

// TestZeroingInterrupted: the driver ends while it zeroes a new volume. No request got the volume: the next start removes it, and
// the same request creates it again; until then no pod can use it, and deleting it is possible.
func TestZeroingInterrupted(t *testing.T) {
	for _, again := range []string{"start", "delete"} {
		node := newNode()
		b, k, dir := fakeFixture(node), newDirtyKernel(node), t.TempDir()
		d := k.start(t, dir)
		release := node.HoldWipes()
		ctx, cancel := context.WithCancel(t.Context())
		asked := make(chan error)
		go func() {
			_, err := d.Create(ctx, b.raw("raw", 10))
			asked <- err
		}()
		eventually(t, func() bool { return node.stateTags(b.Group)["zeroing"] == 1 })
		cancel()
		wantKind(t, "a caller that stops waiting", <-asked, lvm.KindBusy)
		name := b.names(t)[0]
		id := lvm.ID{VG: b.group(t).UUID, LV: name}
		_, err := d.Lookup(t.Context(), id)
		wantKind(t, "its activation", err, lvm.KindNotFound)
		if again == "delete" {
			release()
			eventually(t, func() bool { return node.stateTags(b.Group)["ready"] == 1 })
			if n := k.shows(name, nil); n > 0 {
				t.Errorf("%d extents are not zero", n)
			}
			must(t, d.Delete(t.Context(), id))
			d.waitWiped(t)
			continue
		}
		must(t, d.Close(t.Context()))
		release()
		if tags := node.stateTags(b.Group); tags["zeroing"] != 1 {
			t.Fatalf("tags on the disks after the driver's end: %v", tags)
		}
		d = k.start(t, dir)
		eventually(t, func() bool { return len(b.names(t)) == 0 })
		v := d.create(t, b.raw("raw", 10))
		if n := k.shows(v.ID.LV, nil); n > 0 {
			t.Errorf("created again, it shows %d extents that are not zero", n)
		}
	}
}

// TestExpansionWhileZeroing: while the driver zeroes extents, an expansion returns KindBusy to a caller that stops waiting, and
// the volume is unchanged.
func TestExpansionWhileZeroing(t *testing.T) {
	node := newNode()
	b, k := fakeFixture(node), newDirtyKernel(node)
	d := k.start(t, t.TempDir())
	v := d.create(t, b.raw("raw", 10))
	release := node.HoldWipes()
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error)
	go func() {
		_, err := d.Extend(ctx, v.ID, 20*ExtentSize, 0)
		asked <- err
	}()
	eventually(t, func() bool { return node.stateTags(b.Group)["deleting"] == 1 })
	cancel()
	wantKind(t, "a caller that stops waiting", <-asked, lvm.KindBusy)
	if now, err := d.Lookup(t.Context(), v.ID); err != nil || now.Size != v.Size {
		t.Errorf("meanwhile it is %+v, %v", now, err)
	}
	if m := d.Metrics(); len(m.Backlogs) != 1 || m.Backlogs[0].Namespace != "shop" || m.Backlogs[0].Bytes != 10*ExtentSize {
		t.Errorf("the backlog is %+v", m.Backlogs)
	}
	release()
	now, err := d.Extend(t.Context(), v.ID, 20*ExtentSize, 0)
	must(t, err)
	if n := k.shows(v.ID.LV, nil); n > 0 || now.Size != 20*ExtentSize {
		t.Errorf("it is %+v and shows %d extents that are not zero", now, n)
	}
}

// TestExtendedWhileWiped: an admin extends a deleted volume during its wipe: the driver zeroes its new end too before it frees
// the extents.
func TestExtendedWhileWiped(t *testing.T) {
	node := newNode()
	b, k := fakeFixture(node), newDirtyKernel(node)
	d := k.start(t, t.TempDir())
	v := d.create(t, b.spec("v", 4*ExtentSize))
	k.write(v.ID.LV)
	release := node.HoldWipes()
	must(t, d.Delete(t.Context(), v.ID))
	b.Admin(t, "lvextend", "-y", "-l", "8", b.Group+"/"+v.ID.LV)
	k.write(v.ID.LV)
	content := k.content(v.ID.LV)
	release()
	d.waitWiped(t)
	for at := range content {
		if !k.zero[at] {
			t.Errorf("%v was freed without zeroes", at)
		}
	}
}

func eventually(t testing.TB, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the condition does not become true")
		}
	}
}
