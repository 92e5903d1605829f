package dataleak

import (
	"slices"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/host"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// TestWipeResumes: a wipe that the driver's end interrupts continues where it stopped.
func TestWipeResumes(t *testing.T) {
	node := hosttest.NewNode()
	b := hosttest.OnFake(node)
	cfg := lvm.Config{Cluster: hosttest.Cluster}
	start := func(z *hosttest.ZeroRecorder) *host.Host {
		h := node.HostOn(cfg, lvm.Machine{Kernel: z})
		hosttest.Must(t, h.Start(t.Context()))
		return h
	}
	first := start(&hosttest.ZeroRecorder{Kernel: node.Kernel(), StopAt: 24 * lvm.MiB})
	v, err := first.Create(t.Context(), b.Spec("v", 64*lvm.MiB))
	hosttest.Must(t, err)
	hosttest.Must(t, first.Delete(t.Context(), v.ID))
	for deadline := time.Now().Add(time.Minute); first.Metrics().WipeBacklog != 40*lvm.MiB; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("with 24 of 64 MiB wiped the backlog is %s", first.Metrics().WipeBacklog)
		}
	}
	hosttest.Must(t, first.Close(t.Context()))
	again := &hosttest.ZeroRecorder{Kernel: node.Kernel()}
	d := &hosttest.Driver{Host: start(again)}
	d.WaitWiped(t)
	if want := []string{"24 MiB-64 MiB"}; !slices.Equal(again.Spans(), want) {
		t.Errorf("the next driver zeroed %q, want %q", again.Spans(), want)
	}
	hosttest.Must(t, d.Close(t.Context()))
}

// TestWipeKeepsExtentsOfMissingPV: the extents of a volume with a missing disk are not freed: its data would be readable when the disk
// returns.
func TestWipeKeepsExtentsOfMissingPV(t *testing.T) {
	node := hosttest.NewNode()
	b := hosttest.OnFake(node)
	release := node.HoldWipes()
	d := b.Start(t)
	v := d.MustCreate(t, b.Spec("v", 8*lvm.MiB))
	paths := map[string]string{}
	missing := func(is bool) {
		node.Change("vg-test", func(g *lvm.Group) {
			for i := range g.PVs {
				pv := &g.PVs[i]
				if pv.Missing = is; is {
					paths[pv.UUID], pv.Device = pv.Device, ""
				} else {
					pv.Device = paths[pv.UUID]
				}
			}
		})
	}
	hosttest.Must(t, d.Delete(t.Context(), v.ID))
	hosttest.Must(t, d.Close(t.Context()))
	release()
	missing(true)
	d = b.Start(t)
	time.Sleep(50 * time.Millisecond)
	if m := d.Metrics(); m.Volumes[lvm.StateDeleting] != 1 || m.WipeBacklog != v.Size {
		t.Errorf("with a missing disk: deleted volumes %v, wipe backlog %s", m.Volumes, m.WipeBacklog)
	}
	missing(false)
	d.WaitWiped(t)
}

// TestWipeKeepsUnreachedRAIDLegs: nor are those of a RAID volume with a leg that failed, or was missing at activation, and whose disk is
// back: the zeroes did not reach that leg.
func TestWipeKeepsUnreachedRAIDLegs(t *testing.T) {
	for _, legs := range []string{"AD", "A-"} {
		node := hosttest.NewNode()
		b := hosttest.OnFake(node)
		d := b.Start(t)
		spec := b.Spec("v", 8*lvm.MiB)
		spec.Class.Layout = lvm.LayoutRAID1
		v := d.MustCreate(t, spec)
		device, err := d.Activate(t.Context(), v.ID, v.UUID)
		hosttest.Must(t, err)
		node.SetStatus(device, "raid", "raid1 2 "+legs+" 16384/16384 idle 0 0 -")
		hosttest.Must(t, d.Delete(t.Context(), v.ID))
		time.Sleep(50 * time.Millisecond)
		if m := d.Metrics(); m.Volumes[lvm.StateDeleting] != 1 {
			t.Fatalf("with the legs %s: deleted volumes %v", legs, m.Volumes)
		}
		node.SetStatus(device, "raid", "raid1 2 AA 16384/16384 idle 0 0 -")
		d.WaitWiped(t)
	}
}

// TestExtentsAreReservedWhileWiping: neither the name nor the extents of a deleted volume are free until it is wiped.
func TestExtentsAreReservedWhileWiping(t *testing.T) {
	node, b, d := hosttest.Started(t)
	v := d.MustCreate(t, b.Spec("a", 8*lvm.MiB))
	before := d.MustCapacity(t, b.Class())
	release := node.HoldWipes()
	defer release()
	hosttest.Must(t, d.Delete(t.Context(), v.ID))
	hosttest.Must(t, d.Delete(t.Context(), v.ID))
	_, err := d.Create(t.Context(), b.Spec("a", 8*lvm.MiB))
	hosttest.WantKind(t, "create while the old volume is wiped", err, lvm.KindBusy)
	_, err = d.Activate(t.Context(), v.ID, v.UUID)
	hosttest.WantKind(t, "activation while it is wiped", err, lvm.KindNotFound)
	if m := d.Metrics(); m.WipeBacklog != v.Size || m.Volumes[lvm.StateDeleting] != 1 {
		t.Errorf("the metrics are %+v", m)
	}
	if c := d.MustCapacity(t, b.Class()); c != before {
		t.Errorf("capacity %+v while wiping, %+v before", c, before)
	}
	d.MustCreate(t, b.Spec("b", 8*lvm.MiB)) // does not wait
	hosttest.Must(t, d.Close(t.Context()))  // stops the wipe
	release()
	d = b.Start(t)
	d.WaitWiped(t)
	d.MustCreate(t, b.Spec("a", 8*lvm.MiB))
}
