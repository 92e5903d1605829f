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

// overprovisioned is a requested volume of a pool with twice as much virtual size.
func overprovisioned(name, group string, size lvm.Bytes) lvm.Spec {
	return lvm.Spec{Name: name, Class: lvm.Class{Group: group, Layout: lvm.LayoutThin, Overprovision: 200}, Required: size}
}

// TestExtendThinPools: the driver extends a pool that fills up, once each time that is needed; it reports a failure and retries at
// the next check. A pool that cannot be extended provisions no more until the group has free extents again.
func TestExtendThinPools(t *testing.T) {
	node := lvmtest.NewNode(lvmtest.Group{Name: "vg-test", Disks: []lvm.Bytes{4 * lvm.GiB}})
	b := hosttest.OnFake(node).OneAtATime()
	d := b.Start(t)
	create := func(name string, size lvm.Bytes) (lvm.Volume, error) {
		return d.Create(t.Context(), overprovisioned(name, b.Group, size))
	}
	write := func(v lvm.Volume, size lvm.Bytes) { node.Fill(d.MustActivate(t, v), size) }
	check := func(what string, commands int, wantFailure bool) report.Pool {
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
	if p := check("an empty pool", 0, false); p.Size != lvm.GiB || p.Extensions != 0 {
		t.Errorf("%+v", p)
	}
	write(first, 900*lvm.MiB)
	node.Fail(lvmtest.Fault{})
	if p := check("a command that fails", 1, true); p.Size != lvm.GiB || p.Extensions != 0 {
		t.Errorf("%+v", p)
	}
	if p := check("the next check", 1, false); p.Size != 2*lvm.GiB || p.Extensions != 1 {
		t.Errorf("%+v", p)
	}
	check("another check", 0, false)

	second, err := create("second", 5*lvm.GiB)
	hosttest.Must(t, err)
	write(second, 2500*lvm.MiB)
	check("the rest of the group", 1, false)
	if c := d.MustCapacity(t, first.Class); c != (lvm.Capacity{}) {
		t.Errorf("capacity of an overcommitted pool: %+v", c)
	}
	hosttest.Refused(t, "a volume in an overcommitted pool", lvm.KindInsufficientCapacity)(create("third", lvm.MiB))
	findings := d.Conditions(t)
	if !hosttest.HasCondition(findings, lvm.ConditionThinPoolNearlyFull, "") {
		t.Errorf("findings %+v", findings)
	}
	d.MustRemove(t, second)
	if _, err = create("third", lvm.MiB); err != nil {
		t.Errorf("with free extents again: %v", err)
	}
	if findings, err = d.Health(t.Context()); err != nil || len(findings) > 0 {
		t.Errorf("findings %+v, %v", findings, err)
	}
}

// TestMismatchedPoolIsNotExtended: LVM's metadata of another state maps other extents, so that its table would give a pool that runs another pool's data.
func TestMismatchedPoolIsNotExtended(t *testing.T) {
	node := lvmtest.NewNode(lvmtest.Group{Name: "vg-test", Disks: []lvm.Bytes{4 * lvm.GiB}})
	b := hosttest.OnFake(node).OneAtATime()
	d := b.Start(t)
	v := d.MustCreate(t, overprovisioned("v", b.Group, 2*lvm.GiB))
	node.Fill(d.MustActivate(t, v), 900*lvm.MiB)
	id := restore(node, b.Group, 7)
	d.Counted(t, "with other metadata", 0, func() {
		hosttest.Must(t, d.ExtendThinPools(t.Context()))
		hosttest.Refused(t, "expand a volume", lvm.KindOutOfRange)(d.Extend(t.Context(), v.ID, v.Size+lvm.GiB, 0))
	})
	restore(node, b.Group, id)
	d.Counted(t, "with the pool's metadata", 1, func() { hosttest.Must(t, d.ExtendThinPools(t.Context())) })
}

// TestExtendThinPoolThatAnAdminRemoved: if an admin removes a pool just before the driver extends it, the driver only reports that.
func TestExtendThinPoolThatAnAdminRemoved(t *testing.T) {
	node := lvmtest.NewNode(lvmtest.Group{Name: "vg-test", Disks: []lvm.Bytes{4 * lvm.GiB}})
	b := hosttest.OnFake(node).OneAtATime()
	d := b.Start(t)
	node.Fill(d.MustActivate(t, d.MustCreate(t, overprovisioned("v", b.Group, 2*lvm.GiB))), 900*lvm.MiB)
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
	h := hosttest.StartOn(t, node, lvm.Config{LockTimeLimit: time.Second, ReadyDelay: time.Hour}, lvm.Machine{Runner: block})
	for _, group := range groups {
		node.Fill(h.MustActivate(t, h.MustCreate(t, overprovisioned("in-"+group, group, 2*lvm.GiB))), 900*lvm.MiB)
	}
	block.Group = groups[0]
	for range 2 { // when the group becomes blocked, and afterwards
		checked := make(chan error, 1)
		go func() { checked <- h.ExtendThinPools(t.Context()) }()
		select {
		case err := <-checked:
			hosttest.WantKind(t, "extending pools next to a blocked group", err, lvm.KindBusy)
		case <-time.After(wait.Limit(time.Minute)):
			t.Fatal("a command that does not end delays all pools")
		}
	}
	sizes := func() map[string]lvm.Bytes {
		sizes := map[string]lvm.Bytes{}
		for _, g := range hosttest.Report(h.Host).Groups {
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
