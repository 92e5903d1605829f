package lvmtest_test

import (
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/conformance"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, func(*testing.T) hosttest.Fixture { return hosttest.OnFake(hosttest.NewNode()) })
}

// TestReadThroughLVMReport: if only LVM can read the disks, everything works too, with one report for each read.
func TestReadThroughLVMReport(t *testing.T) {
	node := hosttest.NewNode()
	node.Indirect()
	b := hosttest.OnFake(node).OneAtATime()
	d := b.Start(t)
	d.Counted(t, "capacity", 1, func() { d.MustCapacity(t, b.Class()) })
	var v lvm.Volume
	d.Counted(t, "create", 2+4, func() { v = d.MustCreate(t, b.Spec("a", 9*lvm.MiB)) })
	other := hosttest.NewNode().Start(t, lvm.Config{Cluster: hosttest.Cluster})
	if direct, err := other.Create(t.Context(), b.Spec("a", 9*lvm.MiB)); err != nil || direct != v {
		t.Errorf("through the report: %+v; directly: %+v, %v", v, direct, err)
	}
	if c, want := d.MustCapacity(t, b.Class()), (lvm.Capacity{Available: 1108 * lvm.MiB, Largest: 1108 * lvm.MiB}); c != want {
		t.Errorf("capacity %+v, want %+v", c, want)
	}
	d.MustRemove(t, v)
}
