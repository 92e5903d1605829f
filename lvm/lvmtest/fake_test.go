package lvmtest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// fakeFixture is the fixture of the suite on the fake.
func fakeFixture(node *Node) Fixture {
	return Fixture{
		Group: "vg-test",
		Tag:   "fast",
		Start: func(t testing.TB) *Driver {
			return node.driver(t, lvm.Config{EmptyPoolsFor: time.Nanosecond})
		},
		Admin: func(t testing.TB, argv ...string) {
			t.Helper()
			if argv[0] == "vgrename" {
				node.Change(argv[1], func(g *lvm.Group) { g.Name = lvm.VGName(argv[2]) })
				return
			}
			if argv[0] == "lvrename" {
				node.rename(argv[1], argv[2], argv[3])
				return
			}
			devices := ""
			for i, pv := range node.group("vg-test").PVs {
				if i > 0 {
					devices += ","
				}
				devices += pv.Device
			}
			argv = append([]string{argv[0], "--devices", devices}, argv[1:]...)
			if _, f := node.run(argv); f != nil {
				t.Fatalf("%v: %s", argv, f.words)
			}
		},
		Read: func(t testing.TB) lvm.State {
			s, err := reader{node}.Read(t.Context())
			must(t, err)
			return s
		},
		Suspended: func(t testing.TB, device string) bool {
			is, err := kernel{node}.IsSuspended(device)
			must(t, err)
			return is
		},
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
		Leave: func(_ testing.TB, message string) {
			node.mu.Lock()
			defer node.mu.Unlock()
			g := node.group("vg-test")
			for _, lv := range g.LVs {
				if f := node.deactivate(g, lv.Name); f != nil {
					panic(f.words)
				}
			}
			pool := g.find(lvm.DefaultPool)
			pool.Thin.Messages = append(pool.Thin.Messages, message)
		},
		Lost: func(testing.TB) []int {
			node.mu.Lock()
			defer node.mu.Unlock()
			return node.lost(node.group("vg-test"), lvm.DefaultPool)
		},
		Hold: func(_ testing.TB, device string) func() { return node.Hold(device) },
	}
}

func newNode() *Node {
	return NewNode(
		Group{Name: "vg-other", Disks: []lvm.Bytes{10 * lvm.GiB}},
		Group{Name: "vg-test", Tags: []string{"fast"}, Disks: []lvm.Bytes{128 * lvm.MiB, 128 * lvm.MiB, 160 * lvm.MiB, 96 * lvm.MiB, 512 * lvm.MiB, 96 * lvm.MiB}},
	)
}

// driver starts a driver of the test's cluster on the node.
func (n *Node) driver(t testing.TB, cfg lvm.Config) *Driver {
	t.Helper()
	d := &Driver{}
	d.Host = n.Start(t, d.config(cfg))
	return d
}

// config is a driver's config in the test's cluster; it records each command.
func (d *Driver) config(cfg lvm.Config) lvm.Config {
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

// started returns a driver on a new node. The Fixture closes it before it starts the next one.
func started(t testing.TB) (*Node, Fixture, *Driver) {
	t.Helper()
	node := newNode()
	b := fakeFixture(node).oneAtATime()
	return node, b, b.Start(t)
}

// startedWith returns a driver with this config on a new node.
func startedWith(t testing.TB, cfg lvm.Config) (*Node, Fixture, *Driver) {
	t.Helper()
	node := newNode()
	return node, fakeFixture(node), node.driver(t, cfg)
}

func TestConformance(t *testing.T) {
	Conformance(t, func(*testing.T) Fixture { return fakeFixture(newNode()) })
}

// TestReadThroughLVMReport: if only LVM can read the disks, everything works too, with one report for each read.
func TestReadThroughLVMReport(t *testing.T) {
	node := newNode()
	node.Indirect()
	b := fakeFixture(node).oneAtATime()
	d := b.Start(t)
	d.counted(t, "capacity", 1, func() { d.capacity(t, b.class()) })
	var v lvm.Volume
	d.counted(t, "create", 2+4, func() { v = d.create(t, b.spec("a", 9*lvm.MiB)) })
	other := newNode().Start(t, lvm.Config{Cluster: Cluster})
	if direct, err := other.Create(t.Context(), b.spec("a", 9*lvm.MiB)); err != nil || direct != v {
		t.Errorf("through the report: %+v; directly: %+v, %v", v, direct, err)
	}
	if c, want := d.capacity(t, b.class()), (lvm.Capacity{Available: 1108 * lvm.MiB, Largest: 1108 * lvm.MiB}); c != want {
		t.Errorf("capacity %+v, want %+v", c, want)
	}
	must(t, d.Delete(t.Context(), v.ID))
	d.waitWiped(t)
}

// TestExtentsAreReservedWhileWiping: neither the name nor the extents of a deleted volume are free until it is wiped.
func TestExtentsAreReservedWhileWiping(t *testing.T) {
	node, b, d := started(t)
	v := d.create(t, b.spec("a", 8*lvm.MiB))
	before := d.capacity(t, b.class())
	release := node.HoldWipes()
	defer release()
	must(t, d.Delete(t.Context(), v.ID))
	must(t, d.Delete(t.Context(), v.ID))
	_, err := d.Create(t.Context(), b.spec("a", 8*lvm.MiB))
	wantKind(t, "create while the old volume is wiped", err, lvm.KindBusy)
	_, err = d.Activate(t.Context(), v.ID, v.UUID)
	wantKind(t, "activation while it is wiped", err, lvm.KindNotFound)
	if m := d.Metrics(); m.WipeBacklog != v.Size || m.Volumes[lvm.StateDeleting] != 1 {
		t.Errorf("the metrics are %+v", m)
	}
	if c := d.capacity(t, b.class()); c != before {
		t.Errorf("capacity %+v while wiping, %+v before", c, before)
	}
	d.create(t, b.spec("b", 8*lvm.MiB)) // does not wait
	must(t, d.Close(t.Context()))       // stops the wipe
	release()
	d = b.Start(t)
	d.waitWiped(t)
	d.create(t, b.spec("a", 8*lvm.MiB))
}

// TestStartResumesManagedDevices: a start changes only suspended managed volumes.
func TestStartResumesManagedDevices(t *testing.T) {
	node, b, d := started(t)
	v := d.create(t, b.spec("a", 8*lvm.MiB))
	d.create(t, b.spec("b", 8*lvm.MiB))
	device, _, err := d.Device(v.ID, v.UUID)
	must(t, err)
	d.close(t)
	node.Suspend(device)
	before := len(node.Commands())
	b.Start(t)
	commands := slices.DeleteFunc(node.Commands()[before:], func(c lvm.Command) bool { return c.Name == "fullreport" })
	if len(commands) != 1 || !slices.Contains(commands[0].Args, "--refresh") || commands[0].Args[len(commands[0].Args)-1] != "vg-test/"+v.ID.LV {
		t.Errorf("the start ran %+v", commands)
	}
	if suspended, err := (kernel{node}).IsSuspended(device); err != nil || suspended {
		t.Errorf("suspended: %v, %v", suspended, err)
	}
}

// TestExtentsTakenBeforeCommand: an admin allocates the planned extents between the driver's read and its command.
func TestExtentsTakenBeforeCommand(t *testing.T) {
	node, b, d := startedWith(t, lvm.Config{})
	var once sync.Once
	node.Before = func(argv []string) {
		once.Do(func() {
			g := node.group("vg-test")
			g.add(lvm.LV{UUID: "admin", Name: "admin", Segments: []lvm.Segment{
				{Extents: 3, Type: "linear", Areas: []lvm.Area{{PV: g.PVs[0].UUID, Start: 0}}},
			}})
		})
	}
	d.counted(t, "create", 3, func() {
		if v := d.create(t, b.spec("a", 8*lvm.MiB)); v.Size != 8*lvm.MiB {
			t.Errorf("created %+v", v)
		}
	})
}

// TestFaultAtEachCommand fails each LVM command of a volume's life in turn, in each way, and repeats the failed request: in the end
// everything is as without the fault.
func TestFaultAtEachCommand(t *testing.T) {
	for _, fault := range []Fault{{}, {Late: true}, {Killed: true}, {Late: true, Killed: true}} {
		for call := 0; ; call++ {
			fault.Call = call
			tripped := true
			t.Run(fmt.Sprintf("%+v", fault), func(t *testing.T) {
				node, b, d := started(t)
				node.Fail(fault)
				again(t, func() error { _, err := d.Create(t.Context(), b.spec("a", 8*lvm.MiB)); return err })
				v := d.create(t, b.spec("a", 8*lvm.MiB))
				if v.State != lvm.StateReady || v.Size != 8*lvm.MiB {
					t.Errorf("created %+v", v)
				}
				if n := len(node.group("vg-test").LVs); n != 1 {
					t.Errorf("%d volumes exist", n)
				}
				node.group("vg-test").commit()
				again(t, func() error { return d.Delete(t.Context(), v.ID) })
				d.waitWiped(t)
				b.cleanUp(t)
				tripped = node.Tripped()
			})
			if !tripped {
				if call < 3 {
					t.Errorf("the whole life took %d commands, so too few faults were tried", call)
				}
				break
			}
		}
	}
}

// again repeats a request that the fault made fail.
func again(t *testing.T, do func() error) {
	t.Helper()
	if err := do(); err != nil {
		t.Logf("failed with: %v", err)
		must(t, do())
	}
}
