package operations

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// TestReadyBatch: many new volumes share one commit of their ready tags; the use of one, and Close, commit at once.
func TestReadyBatch(t *testing.T) {
	node, b, d := hosttest.StartedWith(t, hosttest.Unsettled)
	var volumes []lvm.Volume
	d.Counted(t, "five creates", 5, func() {
		for i := range 5 {
			volumes = append(volumes, d.MustCreate(t, b.Spec(fmt.Sprintf("v%d", i), 8*lvm.MiB)))
		}
	})
	if tags := hosttest.StateTags(node, "vg-test"); tags["creating"] != 5 {
		t.Errorf("tags on the disks: %v, want 5 creating", tags)
	}
	if listed, err := d.List(t.Context()); err != nil || len(listed) != 5 {
		t.Errorf("of five new volumes %d are listed, %v", len(listed), err)
	}
	d.Counted(t, "the first use", 1, func() {
		d.MustActivate(t, volumes[2])
	})
	if tags := hosttest.StateTags(node, "vg-test"); tags["ready"] != 5 {
		t.Errorf("tags on the disks: %v, want 5 ready", tags)
	}
	d.MustCreate(t, b.Spec("last", 8*lvm.MiB))
	d.Counted(t, "closing", 1, func() { d.Stop(t) })
	if tags := hosttest.StateTags(node, "vg-test"); tags["ready"] != 6 {
		t.Errorf("tags on the disks after Close: %v, want 6 ready", tags)
	}

	soon := &hosttest.Driver{}
	cfg := soon.Config(hosttest.Unsettled)
	cfg.ReadyDelay = 20 * time.Millisecond
	soon.Host = node.Start(t, cfg)
	soon.MustCreate(t, b.Spec("alone", 8*lvm.MiB))
	wait.For(t, time.Minute, "the driver tags a new volume as ready by itself", func() bool { return hosttest.StateTags(node, "vg-test")["creating"] == 0 })
}

// TestReadyCommitFails: a volume whose ready tag is not committed is not handed out; one whose tag is committed despite an error is.
func TestReadyCommitFails(t *testing.T) {
	for _, late := range []bool{false, true} {
		node, b, d := hosttest.StartedWith(t, hosttest.Unsettled)
		v := d.MustCreate(t, b.Spec("v", 8*lvm.MiB))
		node.Fail(lvmtest.Fault{Late: late})
		_, err := d.Activate(t.Context(), v.ID, v.UUID)
		if late != (err == nil) {
			t.Errorf("activation with a failing ready commit (late: %v): %v", late, err)
		}
		d.MustActivate(t, v)
		if tags := hosttest.StateTags(node, "vg-test"); tags["ready"] != 1 {
			t.Errorf("tags on the disks: %v, want 1 ready", tags)
		}
	}
}

// TestReadyCommitWaitsForMissingPV: the driver does not commit ready tags while a disk is missing, since LVM would set its MISSING flag.
func TestReadyCommitWaitsForMissingPV(t *testing.T) {
	node := hosttest.NewNode()
	d := hosttest.StartDriver(t, node, hosttest.Unsettled)
	v := d.MustCreate(t, hosttest.OnFake(node).Spec("v", 8*lvm.MiB))
	putBack := node.LoseDisk("vg-test", 5)
	before := len(d.Commands())
	d.Stop(t)
	if ran := d.Commands()[before:]; len(ran) > 0 {
		t.Errorf("with a missing disk, Close ran %v", ran)
	}
	putBack()
	next := hosttest.StartDriver(t, node, hosttest.Unsettled)
	next.MustActivate(t, v)
	if tags := hosttest.StateTags(node, "vg-test"); tags["ready"] != 1 {
		t.Errorf("tags with the disk back: %v, want 1 ready", tags)
	}
}

// successor returns a driver, not yet started, on the node of one that was killed after it returned a volume, and before it
// could tag the volume as ready. It records what it zeroes.
func successor(t *testing.T) (*lvmtest.Node, *hosttest.Driver, lvm.Volume, *hosttest.ZeroRecorder) {
	node := hosttest.NewNode()
	next := &hosttest.Driver{}
	cfg := next.Config(hosttest.Unsettled)
	killed := node.Host(cfg)
	hosttest.Must(t, killed.Start(t.Context()))
	v, err := killed.Create(t.Context(), hosttest.OnFake(node).Spec("v", 64*lvm.MiB))
	hosttest.Must(t, err)
	zeroes := &hosttest.ZeroRecorder{Kernel: node.Kernel()}
	next.Host = node.HostOn(cfg, lvm.Machine{Kernel: zeroes})
	return node, next, v, zeroes
}

// TestKillBeforeReadyCommit: a driver that dies between its answer and the ready commit loses nothing: the next one blanks the
// volume's beginning and end, and keeps it.
func TestKillBeforeReadyCommit(t *testing.T) {
	_, next, v, zeroes := successor(t)
	next.Counted(t, "the next start, with the report that checks the direct read", 2, func() { hosttest.Must(t, next.Start(t.Context())) })
	if want := []string{"0-8 MiB", "62 MiB-64 MiB"}; !slices.Equal(zeroes.Spans(), want) {
		t.Errorf("it zeroed %q, want %q", zeroes.Spans(), want)
	}
	if now, err := next.Lookup(t.Context(), v.ID); err != nil || now != v {
		t.Errorf("the created volume %+v became %+v, %v", v, now, err)
	}
	hosttest.Must(t, next.Close(t.Context()))
}
