package thinpool

import (
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
	"github.com/nodelvm/nodelvm/report"
)

// TestExtendThinPools: the driver extends a pool that fills up, once each time that is needed; it reports a failure and retries at
// the next check. A pool that cannot be extended provisions no more until the group has free extents again.
func TestExtendThinPools(t *testing.T) {
	node := lvmtest.NewNode(lvmtest.Group{Name: "vg-test", Disks: []lvm.Bytes{4 * lvm.GiB}})
	b := hosttest.OnFake(node).OneAtATime()
	d := b.Start(t)
	class := lvm.Class{Group: b.Group, Layout: lvm.LayoutThin, Overprovision: 200}
	create := func(name string, size lvm.Bytes) (lvm.Volume, error) {
		return d.Create(t.Context(), lvm.Spec{Name: name, Class: class, Required: size})
	}
	write := func(v lvm.Volume, size lvm.Bytes) {
		path, err := d.Activate(t.Context(), v.ID, v.UUID)
		hosttest.Must(t, err)
		node.Fill(path, size)
	}
	tend := func(what string, commands int, wantFailure bool) report.Pool {
		t.Helper()
		d.Counted(t, what, commands, func() {
			if err := d.ExtendThinPools(t.Context()); (err != nil) != wantFailure {
				t.Errorf("%s: %v", what, err)
			}
		})
		return hosttest.Report(d.Host).Groups[0].Pools[0]
	}
	first, err := create("first", 2*lvm.GiB)
	hosttest.Must(t, err)
	if p := tend("an empty pool", 0, false); p.Size != lvm.GiB || p.Extensions != 0 {
		t.Errorf("%+v", p)
	}
	write(first, 900*lvm.MiB)
	node.Fail(lvmtest.Fault{})
	if p := tend("a command that fails", 1, true); p.Size != lvm.GiB || p.Extensions != 0 {
		t.Errorf("%+v", p)
	}
	if p := tend("the next check", 1, false); p.Size != 2*lvm.GiB || p.Extensions != 1 {
		t.Errorf("%+v", p)
	}
	tend("another check", 0, false)

	second, err := create("second", 5*lvm.GiB)
	hosttest.Must(t, err)
	write(second, 2500*lvm.MiB)
	tend("the rest of the group", 1, false)
	if c := d.MustCapacity(t, class); c != (lvm.Capacity{}) {
		t.Errorf("capacity of an overcommitted pool: %+v", c)
	}
	_, err = create("third", lvm.MiB)
	hosttest.WantKind(t, "a volume in an overcommitted pool", err, lvm.KindInsufficientCapacity)
	findings, err := d.Health(t.Context())
	if hosttest.Must(t, err); !hosttest.HasCondition(findings, lvm.ConditionThinPoolNearlyFull, "") {
		t.Errorf("findings %+v", findings)
	}
	hosttest.Must(t, d.Delete(t.Context(), second.ID))
	d.WaitWiped(t)
	if _, err = create("third", lvm.MiB); err != nil {
		t.Errorf("with free extents again: %v", err)
	}
	if findings, err = d.Health(t.Context()); err != nil || len(findings) > 0 {
		t.Errorf("findings %+v, %v", findings, err)
	}
}

// TestExtendThinPoolThatAnAdminRemoved: if an admin removes a pool just before the driver extends it, the driver only reports that.
func TestExtendThinPoolThatAnAdminRemoved(t *testing.T) {
	node := lvmtest.NewNode(lvmtest.Group{Name: "vg-test", Disks: []lvm.Bytes{4 * lvm.GiB}})
	b := hosttest.OnFake(node).OneAtATime()
	d := b.Start(t)
	v := d.MustCreate(t, lvm.Spec{Name: "v", Class: lvm.Class{Group: b.Group, Layout: lvm.LayoutThin, Overprovision: 200}, Required: 2 * lvm.GiB})
	path, err := d.Activate(t.Context(), v.ID, v.UUID)
	hosttest.Must(t, err)
	node.Fill(path, 900*lvm.MiB)
	node.Before(func(argv []string) {
		if argv[0] == "lvextend" {
			node.Change("vg-test", func(g *lvm.Group) { g.LVs = nil })
		}
	})
	if err := d.ExtendThinPools(t.Context()); err == nil || !strings.Contains(err.Error(), "was removed while") {
		t.Errorf("the error is %v", err)
	}
}

// TestExtendThinPoolsWhileAnotherVGHangs: while a command in one group does not end, the driver extends the pools of others.
func TestExtendThinPoolsWhileAnotherVGHangs(t *testing.T) {
	groups := []string{"vg-hangs", "vg-works"}
	node := lvmtest.NewNode(lvmtest.Group{Name: groups[0], Disks: []lvm.Bytes{4 * lvm.GiB}}, lvmtest.Group{Name: groups[1], Disks: []lvm.Bytes{4 * lvm.GiB}})
	block := &hosttest.BlockedRunner{Runner: node.Runner(), Group: "none", Release: make(chan struct{})}
	h := node.HostOn(lvm.Config{Cluster: hosttest.Cluster, LockTimeLimit: time.Second, ReadyDelay: time.Hour}, lvm.Machine{Runner: block})
	hosttest.Must(t, h.Start(t.Context()))
	for _, group := range groups {
		class := lvm.Class{Group: group, Layout: lvm.LayoutThin, Overprovision: 200}
		v, err := h.Create(t.Context(), lvm.Spec{Name: "in-" + group, Class: class, Required: 2 * lvm.GiB})
		hosttest.Must(t, err)
		path, err := h.Activate(t.Context(), v.ID, v.UUID)
		hosttest.Must(t, err)
		node.Fill(path, 900*lvm.MiB)
	}
	block.Group = groups[0]
	for range 2 { // when the group becomes blocked, and afterwards
		tended := make(chan error, 1)
		go func() { tended <- h.ExtendThinPools(t.Context()) }()
		select {
		case err := <-tended:
			hosttest.WantKind(t, "extending pools next to a blocked group", err, lvm.KindBusy)
		case <-time.After(wait.Limit(time.Minute)):
			t.Fatal("a command that does not end delays all pools")
		}
	}
	sizes := func() map[string]lvm.Bytes {
		sizes := map[string]lvm.Bytes{}
		for _, g := range hosttest.Report(h).Groups {
			sizes[string(g.Name)] = g.Pools[0].Size
		}
		return sizes
	}
	if now := sizes(); now[groups[0]] != lvm.GiB || now[groups[1]] != 2*lvm.GiB {
		t.Errorf("the pools have %v", now)
	}
	close(block.Release)
	hosttest.Must(t, h.Close(t.Context()))
	if now := sizes(); now[groups[0]] != 2*lvm.GiB {
		t.Errorf("after the command ended the pools have %v", now)
	}
}
