package hosttest

import (
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
)

// OnFake returns the fixture on a fake node, which has the groups of NewNode.
func OnFake(node *lvmtest.Node) Fixture {
	return Fixture{
		Group: "vg-test",
		Tag:   "fast",
		Start: func(t testing.TB) *Driver {
			return StartDriver(t, node, lvm.Config{EmptyPoolsFor: time.Nanosecond})
		},
		Admin: func(t testing.TB, argv ...string) {
			t.Helper()
			if argv[0] == "vgrename" {
				node.Change(argv[1], func(g *lvm.Group) { g.Name = lvm.VGName(argv[2]) })
				return
			}
			if argv[0] == "lvrename" {
				node.Rename(argv[1], argv[2], argv[3])
				return
			}
			Must(t, node.Admin(argv...))
		},
		Read: func(t testing.TB) lvm.State {
			s, err := node.Reader().Read(t.Context())
			Must(t, err)
			return s
		},
		Suspended: func(t testing.TB, device string) bool {
			is, err := node.Kernel().IsSuspended(device)
			Must(t, err)
			return is
		},
		TakesNoWrites: func(_ testing.TB, device string) bool { return node.TakesNoWrites(device) },
		Write:         func(_ testing.TB, device string, count int) { node.Write(device, int64(count)) },
		Spoil: func(_ testing.TB, how string) func() {
			spoil := func(problem string, missing bool, copies ...string) func(*lvm.Group) {
				return func(g *lvm.Group) { g.Problem, g.PVs[5].Missing, g.PVs[5].DuplicateDevices = problem, missing, copies }
			}
			switch how {
			case "partial":
				node.Change("vg-test", spoil("", true))
			case "duplicated":
				node.Change("vg-test", spoil(how, false, "/dev/fakec", "/dev/fakex"))
			default:
				node.Change("vg-test", spoil(how, false))
				node.Change("vg-test", func(g *lvm.Group) { g.Closed = how != "fixed" })
			}
			return func() {
				node.Change("vg-test", spoil("", false))
				node.Change("vg-test", func(g *lvm.Group) { g.Closed = false })
			}
		},
		Leave: func(t testing.TB, message string) { Must(t, node.LeaveMessage("vg-test", message)) },
		Lost:  func(testing.TB) []int { return node.LostDevices("vg-test") },
		Hold:  func(_ testing.TB, device string) func() { return node.Hold(device) },
		Bind:  func(_ testing.TB, device string) func() { return node.Bind(device) },
	}
}

// NewNode returns a fake node with the group of the fixture, vg-test, and another group.
func NewNode() *lvmtest.Node {
	return lvmtest.NewNode(
		lvmtest.Group{Name: "vg-other", Disks: []lvm.Bytes{10 * lvm.GiB}},
		lvmtest.Group{Name: "vg-test", Tags: []string{"fast"}, Disks: []lvm.Bytes{128 * lvm.MiB, 128 * lvm.MiB, 160 * lvm.MiB, 96 * lvm.MiB, 512 * lvm.MiB, 96 * lvm.MiB}},
	)
}

// StartDriver starts a driver of the test's cluster on the node.
func StartDriver(t testing.TB, node *lvmtest.Node, cfg lvm.Config) *Driver {
	t.Helper()
	d := &Driver{}
	d.Host = node.Start(t, d.Config(cfg))
	return d
}

// StartOn starts a driver of the test's cluster on a machine; the node provides what the machine lacks. It ends with the test.
func StartOn(t testing.TB, node *lvmtest.Node, cfg lvm.Config, m lvm.Machine) *Driver {
	t.Helper()
	d := &Driver{}
	d.Host = node.HostOn(d.Config(cfg), m)
	Must(t, d.Start(t.Context()))
	t.Cleanup(func() { d.Stop(t) })
	return d
}

// Config returns cfg for a driver in the test's cluster that records each command.
func (d *Driver) Config(cfg lvm.Config) lvm.Config {
	cfg.Cluster = Cluster
	also := cfg.Observe
	cfg.Observe = func(c lvm.Command) {
		d.Observe(c)
		if also != nil {
			also(c)
		}
	}
	return cfg
}

// Started returns a driver on a new node. The Fixture closes it before it starts the next one.
func Started(t testing.TB) (*lvmtest.Node, Fixture, *Driver) {
	t.Helper()
	node := NewNode()
	b := OnFake(node).OneAtATime()
	return node, b, b.Start(t)
}

// StartedWith returns a driver with this config on a new node.
func StartedWith(t testing.TB, cfg lvm.Config) (*lvmtest.Node, Fixture, *Driver) {
	t.Helper()
	node := NewNode()
	return node, OnFake(node), StartDriver(t, node, cfg)
}

// Unsettled is a config with which the delayed commits of ready tags do not happen during a test.
var Unsettled = lvm.Config{ReadyDelay: time.Hour}

// StateTags counts the state tags of a group's volumes.
func StateTags(node *lvmtest.Node, group string) map[string]int {
	count := map[string]int{}
	for _, lv := range node.Group(group).LVs {
		for _, tag := range lv.Tags {
			if state, is := strings.CutPrefix(tag, "nodelvm.state="); is {
				count[state]++
			}
		}
	}
	return count
}

// Untag removes the driver's tags from a volume, as if an admin had created it.
func Untag(node *lvmtest.Node, group, name string) {
	node.Change(group, func(g *lvm.Group) {
		for i := range g.LVs {
			if g.LVs[i].Name == name {
				g.LVs[i].Tags = []string{"admins"}
			}
		}
	})
}
