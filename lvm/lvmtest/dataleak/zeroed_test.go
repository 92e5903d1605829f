package dataleak

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// rawSpec is a requested raw block volume.
func rawSpec(b hosttest.Fixture, name string, extents lvm.Extents) lvm.Spec {
	spec := b.Spec(name, lvm.Bytes(extents)*lvmtest.ExtentSize)
	spec.Block = true
	return spec
}

// known makes the driver know that as many extents as a deleted volume had are zero.
func known(t *testing.T, b hosttest.Fixture, d *hosttest.Driver, extents lvm.Extents) {
	t.Helper()
	v := d.MustCreate(t, b.Spec("known", lvm.Bytes(extents)*lvmtest.ExtentSize))
	d.MustRemove(t, v)
}

// TestKnownZeroesCostNothing: a raw block volume on extents that the driver has zeroed costs no more than another volume to
// create and extend, also after a restart; and a file system's volume never costs more, whatever its extents hold.
func TestKnownZeroesCostNothing(t *testing.T) {
	node := hosttest.NewNode()
	b, k, dir := hosttest.OnFake(node), newDirtyKernel(node), t.TempDir()
	d := k.start(t, dir)
	d.Counted(t, "a file system's volume on unknown extents", 1, func() { d.MustCreate(t, b.Spec("fs", 4*lvmtest.ExtentSize)) })
	known(t, b, d, 40)
	hosttest.Must(t, d.Close(t.Context()))
	d = k.start(t, dir)
	before := k.count()
	var v lvm.Volume
	d.Counted(t, "a raw block volume", 1, func() { v = d.MustCreate(t, rawSpec(b, "raw", 10)) })
	d.Counted(t, "its expansion", 1, func() {
		v = d.MustExtend(t, v, 20*lvmtest.ExtentSize)
	})
	if n := k.count() - before; n > 0 {
		t.Errorf("the driver zeroed %d extents that were zero", n)
	}
	if n := k.shows(v.ID.LV, nil); n > 0 {
		t.Errorf("%d extents are not zero", n)
	}
	d.Counted(t, "a volume on extents that an admin vouches for", 1, func() {
		node.Change(b.Group, func(g *lvm.Group) {
			g.Tags = append(g.Tags, fmt.Sprintf("nodelvm.zeroed=%d", g.Seqno+1))
			g.Seqno++
		})
		d.MustCreate(t, rawSpec(b, "vouched", 60))
	})
	if n := k.count() - before; n > 0 {
		t.Errorf("the driver zeroed %d extents that an admin vouched for", n)
	}
}

// TestKnownZeroesOfUnstartedHost: a Host that is not started knows what it has zeroed itself, and does not change the files.
func TestKnownZeroesOfUnstartedHost(t *testing.T) {
	node := hosttest.NewNode()
	b, k, dir := hosttest.OnFake(node), newDirtyKernel(node), t.TempDir()
	d := node.HostOn(lvm.Config{Cluster: hosttest.Cluster, BackupDir: dir, CacheTTL: -1}, lvm.Machine{Kernel: k})
	v, err := d.Create(t.Context(), rawSpec(b, "raw", 4))
	hosttest.Must(t, err)
	if v, err = d.Extend(t.Context(), v.ID, 8*lvmtest.ExtentSize, 0); err != nil || k.shows(v.ID.LV, nil) > 0 {
		t.Errorf("it is %+v, %v", v, err)
	}
	hosttest.Must(t, d.Close(t.Context()))
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("it wrote %v, %v", files, err)
	}
}

// TestUnknownExtentsAreZeroedOnce: the driver zeroes only the unknown extents of a raw block volume, before it returns the volume, with
// one more process.
func TestUnknownExtentsAreZeroedOnce(t *testing.T) {
	node := hosttest.NewNode()
	b, k := hosttest.OnFake(node), newDirtyKernel(node)
	d := k.start(t, t.TempDir())
	var v lvm.Volume
	d.Counted(t, "a raw block volume on unknown extents", 2, func() { v = d.MustCreate(t, rawSpec(b, "raw", 10)) })
	if n := k.count(); n != 10 || v.State != lvm.StateReady || !v.Block {
		t.Errorf("the driver zeroed %d extents of %+v", n, v)
	}
	if tags := hosttest.StateTags(node, b.Group); tags["ready"] != 1 {
		t.Errorf("tags on the disks when Create returns: %v", tags)
	}
	d.Counted(t, "the same again", 0, func() {
		if again := d.MustCreate(t, rawSpec(b, "raw", 10)); again != v {
			t.Errorf("%+v, and then %+v", v, again)
		}
	})
	before := k.count()
	d.Counted(t, "its expansion: allocate the extents, free them, and extend the volume", 3, func() { d.MustExtend(t, v, 15*lvmtest.ExtentSize) })
	if n := k.count() - before; n != 5 {
		t.Errorf("the driver zeroed %d extents for an expansion by 5", n)
	}
	d.WaitWiped(t)
	if names := namesIn(t, b); !slices.Equal(names, []string{v.ID.LV}) {
		t.Errorf("the group has %q", names)
	}
}

func namesIn(t testing.TB, b hosttest.Fixture) (names []string) {
	t.Helper()
	for _, lv := range b.ReadGroup(t).LVs {
		names = append(names, lv.Name)
	}
	return names
}

// visit uses all free extents of the group and frees them, as another program does.
func visit(t *testing.T, b hosttest.Fixture, k *dirtyKernel) {
	t.Helper()
	b.Admin(t, "lvcreate", "-y", "-l", fmt.Sprint(b.ReadGroup(t).FreeExtents()), "-n", "visitor", b.Group)
	k.write("visitor")
	b.Admin(t, "lvremove", "-y", b.Group+"/visitor")
}

// TestExpansionNoticesForeignUse: another program uses the extents of an expansion between the driver's plan and its command. The
// driver zeroes them before the volume shows them.
func TestExpansionNoticesForeignUse(t *testing.T) {
	for _, when := range []string{"while the driver tags the group", "while it holds LVM's lock"} {
		t.Run(when, func(t *testing.T) {
			node := hosttest.NewNode()
			b, k := hosttest.OnFake(node), newDirtyKernel(node)
			runner := &lockedOut{Runner: node.Runner()}
			d := hosttest.StartOn(t, node, lvm.Config{Node: "node-a", CacheTTL: -1}, lvm.Machine{Kernel: k, Runner: runner})
			known(t, b, d, 40)
			v := d.MustCreate(t, rawSpec(b, "raw", 10))
			before, zeroed := k.content(v.ID.LV), k.count()
			if when == "while it holds LVM's lock" {
				runner.holder = func() { visit(t, b, k) }
			} else {
				node.Change(b.Group, func(g *lvm.Group) { g.Tags, g.Seqno = []string{"fast"}, g.Seqno+1 })
				node.Before(func(argv []string) {
					if argv[0] == "vgchange" {
						visit(t, b, k)
					}
				})
			}
			now := d.MustExtend(t, v, 20*lvmtest.ExtentSize)
			if n := k.shows(v.ID.LV, before); n > 0 || now.Size != 20*lvmtest.ExtentSize || k.count() == zeroed {
				t.Errorf("it is %+v and shows %d extents that are not zero", now, n)
			}
		})
	}
}

// lockedOut is a runner whose first lvextend finds LVM's lock taken by a program that runs holder. LVM waits for the lock, unless
// the command says otherwise.
type lockedOut struct {
	lvm.Runner
	holder func()
}

func (r *lockedOut) Run(ctx context.Context, argv []string) ([]byte, error) {
	if argv[0] != "lvextend" || r.holder == nil {
		return r.Runner.Run(ctx, argv)
	}
	r.holder()
	r.holder = nil
	if !slices.Contains(argv, "global/wait_for_locks=0") {
		return r.Runner.Run(ctx, argv)
	}
	return nil, &lvm.ExitError{Argv: argv, Code: 5, Stderr: "/run/lock/lvm/V_vg-test: flock failed: Resource temporarily unavailable\n  Can't get lock for vg-test.\n  Cannot process volume group vg-test"}
}

// TestZeroingFails: the driver never returns a raw block volume that it cannot zero, and removes it.
func TestZeroingFails(t *testing.T) {
	node := hosttest.NewNode()
	b, k := hosttest.OnFake(node), newDirtyKernel(node)
	d := k.start(t, t.TempDir())
	k.fail = fmt.Errorf("input/output error")
	_, err := d.Create(t.Context(), rawSpec(b, "raw", 10))
	hosttest.WantKind(t, "a raw block volume on a bad disk", err, lvm.KindInternal)
	if err == nil || !strings.Contains(err.Error(), "may hold other users' data") {
		t.Errorf("the error is %v", err)
	}
	if names := namesIn(t, b); len(names) > 0 {
		t.Errorf("%q is left", names)
	}
}

// TestZeroingInterrupted: the driver ends while it zeroes a new volume. No request got the volume: the next start removes it, and
// the same request creates it again; until then no pod can use it, and deleting it is possible.
func TestZeroingInterrupted(t *testing.T) {
	for _, again := range []string{"start", "delete"} {
		node := hosttest.NewNode()
		b, k, dir := hosttest.OnFake(node), newDirtyKernel(node), t.TempDir()
		d := k.start(t, dir)
		release := node.HoldWipes()
		abandon(t, func(ctx context.Context) error { _, err := d.Create(ctx, rawSpec(b, "raw", 10)); return err },
			func() bool { return hosttest.StateTags(node, b.Group)["zeroing"] == 1 })
		name := namesIn(t, b)[0]
		id := lvm.ID{VG: b.ReadGroup(t).UUID, LV: name}
		hosttest.Refused(t, "its activation", lvm.KindNotFound)(d.Lookup(t.Context(), id))
		if again == "delete" {
			release()
			eventually(t, func() bool { return hosttest.StateTags(node, b.Group)["ready"] == 1 })
			if n := k.shows(name, nil); n > 0 {
				t.Errorf("%d extents are not zero", n)
			}
			hosttest.Must(t, d.Delete(t.Context(), id))
			d.WaitWiped(t)
			continue
		}
		hosttest.Must(t, d.Close(t.Context()))
		release()
		if tags := hosttest.StateTags(node, b.Group); tags["zeroing"] != 1 {
			t.Fatalf("tags on the disks after the driver's end: %v", tags)
		}
		d = k.start(t, dir)
		eventually(t, func() bool { return len(namesIn(t, b)) == 0 })
		v := d.MustCreate(t, rawSpec(b, "raw", 10))
		if n := k.shows(v.ID.LV, nil); n > 0 {
			t.Errorf("created again, it shows %d extents that are not zero", n)
		}
	}
}

// TestExpansionWhileZeroing: while the driver zeroes extents, an expansion returns KindBusy to a caller that stops waiting, and
// the volume is unchanged.
func TestExpansionWhileZeroing(t *testing.T) {
	node := hosttest.NewNode()
	b, k := hosttest.OnFake(node), newDirtyKernel(node)
	d := k.start(t, t.TempDir())
	v := d.MustCreate(t, rawSpec(b, "raw", 10))
	release := node.HoldWipes()
	abandon(t, func(ctx context.Context) error { _, err := d.Extend(ctx, v.ID, 20*lvmtest.ExtentSize, 0); return err },
		func() bool { return len(hosttest.Report(d.Host).Backlogs) == 1 })
	if now, err := d.Lookup(t.Context(), v.ID); err != nil || now.Size != v.Size {
		t.Errorf("meanwhile it is %+v, %v", now, err)
	}
	if tags := hosttest.StateTags(node, b.Group); tags["deleting"] != 1 {
		t.Errorf("meanwhile the tags on the disks are %v", tags)
	}
	if m := hosttest.Report(d.Host); len(m.Backlogs) != 1 || m.Backlogs[0].Namespace != "shop" || m.Backlogs[0].Bytes != 10*lvmtest.ExtentSize {
		t.Errorf("the backlog is %+v", m.Backlogs)
	}
	release()
	now := d.MustExtend(t, v, 20*lvmtest.ExtentSize)
	if n := k.shows(v.ID.LV, nil); n > 0 || now.Size != 20*lvmtest.ExtentSize {
		t.Errorf("it is %+v and shows %d extents that are not zero", now, n)
	}
}

// TestExtendedWhileWiped: an admin extends a deleted volume during its wipe: the driver zeroes its new end too before it frees
// the extents.
func TestExtendedWhileWiped(t *testing.T) {
	node := hosttest.NewNode()
	b, k := hosttest.OnFake(node), newDirtyKernel(node)
	d := k.start(t, t.TempDir())
	v := d.MustCreate(t, b.Spec("v", 4*lvmtest.ExtentSize))
	k.write(v.ID.LV)
	release := node.HoldWipes()
	hosttest.Must(t, d.Delete(t.Context(), v.ID))
	b.Admin(t, "lvextend", "-y", "-l", "8", b.Group+"/"+v.ID.LV)
	k.write(v.ID.LV)
	content := k.content(v.ID.LV)
	release()
	d.WaitWiped(t)
	for at := range content {
		if !k.zero[at] {
			t.Errorf("%v was freed without zeroes", at)
		}
	}
}

// abandon makes a request, and stops waiting for its answer when the driver zeroes for it.
func abandon(t *testing.T, request func(context.Context) error, zeroes func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan error)
	go func() { answer <- request(ctx) }()
	eventually(t, zeroes)
	cancel()
	hosttest.WantKind(t, "a caller that stops waiting", <-answer, lvm.KindBusy)
}

func eventually(t testing.TB, is func() bool) {
	t.Helper()
	wait.For(t, 30*time.Second, "the condition becomes true", is)
}

// TestExtentsOfRemovedPoolAreNotKnownZero: the extents of a removed pool do not count as zeroed: a raw block volume shows no old data.
func TestExtentsOfRemovedPoolAreNotKnownZero(t *testing.T) {
	node := hosttest.NewNode()
	b, k := hosttest.OnFake(node), newDirtyKernel(node)
	d := k.start(t, t.TempDir())
	all := d.MustCreate(t, rawSpec(b, "all", lvm.Extents(d.MustCapacity(t, b.Class()).Largest/lvmtest.ExtentSize)))
	d.MustRemove(t, all) // the driver knows that all free extents are zero
	v := d.MustCreate(t, b.Thin("v", 40*lvm.MiB, lvm.ID{}))
	k.write(lvm.DefaultPool + "_tdata")
	hosttest.Must(t, d.Delete(t.Context(), v.ID))
	hosttest.Must(t, d.ExtendThinPools(t.Context())) // removes the pool
	before := k.count()
	all = d.MustCreate(t, rawSpec(b, "all", lvm.Extents(d.MustCapacity(t, b.Class()).Largest/lvmtest.ExtentSize)))
	if n, zeroed := k.shows(all.ID.LV, nil), k.count()-before; n > 0 || zeroed == 0 {
		t.Errorf("%d extents are not zero, and %d were zeroed", n, zeroed)
	}
}
