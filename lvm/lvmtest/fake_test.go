package lvmtest

import (
	"fmt"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// bed runs the suite over the fake.
func bed(node *Node) Bed {
	return Bed{
		Group: "vg-test",
		Tag:   "fast",
		Start: func(t testing.TB) *Driver {
			d := &Driver{}
			d.Host = node.Start(t, lvm.Config{Cluster: Cluster, Observe: d.Observe})
			return d
		},
		Admin: func(t testing.TB, argv ...string) {
			t.Helper()
			devices := ""
			for i, pv := range node.group("vg-test").PVs {
				if i > 0 {
					devices += ","
				}
				devices += pv.Device
			}
			argv = append([]string{argv[0], "--devices", devices}, argv[1:]...)
			if argv[0] == "lvcreate" { // the real one chooses extents by itself
				pv := node.group("vg-test").PVs[1]
				argv = append(argv, fmt.Sprintf("%s:%d-%d", pv.Device, pv.Extents-1, pv.Extents-1))
			}
			if _, f := node.run(argv); f != nil {
				t.Fatalf("%v: %s", argv, f.words)
			}
		},
		Hold: func(_ testing.TB, device string) func() { return node.Hold(device) },
	}
}

func newNode() *Node {
	return NewNode(
		Group{Name: "vg-other", Disks: []lvm.Bytes{10 * lvm.GiB}},
		Group{Name: "vg-test", Tags: []string{"fast"}, Disks: []lvm.Bytes{512 * lvm.MiB, lvm.GiB}},
	)
}

func TestConformance(t *testing.T) {
	Conformance(t, func(*testing.T) Bed { return bed(newNode()) })
}

// TestFaults fails each LVM command of a life in turn, in each way, and does what was refused once more: in the end
// everything is as if nothing had failed.
func TestFaults(t *testing.T) {
	for _, fault := range []Fault{{}, {Late: true}, {Killed: true}, {Late: true, Killed: true}} {
		for call := 0; ; call++ {
			fault.Call = call
			tripped := true
			t.Run(fmt.Sprintf("%+v", fault), func(t *testing.T) {
				node := newNode()
				b := bed(node).oneAtATime()
				d := b.Start(t)
				node.Fail(fault)
				again(t, func() error { _, err := d.Create(t.Context(), b.spec("a", 8*lvm.MiB)); return err })
				v := d.create(t, b.spec("a", 8*lvm.MiB))
				if v.State != lvm.StateReady || v.Size != 8*lvm.MiB {
					t.Errorf("created %+v", v)
				}
				if n := len(node.group("vg-test").LVs); n != 1 {
					t.Errorf("there are %d volumes", n)
				}
				node.group("vg-test").commit(0)
				again(t, func() error { return d.Delete(t.Context(), v.ID) })
				d.waitWiped(t)
				b.cleanUp(t)
				tripped = node.Tripped()
			})
			if !tripped {
				if call < 3 {
					t.Errorf("the whole life took %d commands; faults were hardly tried", call)
				}
				break
			}
		}
	}
}

// again does what the fault may have refused once more.
func again(t *testing.T, do func() error) {
	t.Helper()
	if err := do(); err != nil {
		t.Logf("refused with: %v", err)
		must(t, do())
	}
}
