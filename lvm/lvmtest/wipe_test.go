package lvmtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/host"
)

// zeroing is a kernel that records what it zeroes, and can stop after a chunk.
type zeroing struct {
	kernel
	stopAt lvm.Bytes

	mu    sync.Mutex
	spans []string
}

func (z *zeroing) Zero(ctx context.Context, d lvm.Device, from, to lvm.Bytes, done func(lvm.Bytes)) error {
	z.mu.Lock()
	z.spans = append(z.spans, fmt.Sprintf("%s-%s", strings.TrimSuffix(from.String(), " B"), to))
	z.mu.Unlock()
	if z.stopAt == 0 {
		return z.kernel.Zero(ctx, d, from, to, done)
	}
	done(z.stopAt)
	<-ctx.Done()
	return ctx.Err()
}

// TestWipeResumes: a wipe that the driver's end interrupts continues where it stopped.
func TestWipeResumes(t *testing.T) {
	node := newNode()
	b := fakeFixture(node)
	cfg := lvm.Config{Cluster: Cluster}
	start := func(z *zeroing) *host.Host {
		h := node.hostOn(cfg, lvm.Machine{Kernel: z})
		must(t, h.Start(t.Context()))
		return h
	}
	first := start(&zeroing{kernel: kernel{node}, stopAt: 24 * lvm.MiB})
	v, err := first.Create(t.Context(), b.spec("v", 64*lvm.MiB))
	must(t, err)
	must(t, first.Delete(t.Context(), v.ID))
	for deadline := time.Now().Add(time.Minute); first.Metrics().WipeBacklog != 40*lvm.MiB; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("with 24 of 64 MiB wiped the backlog is %s", first.Metrics().WipeBacklog)
		}
	}
	must(t, first.Close(t.Context()))
	again := &zeroing{kernel: kernel{node}}
	d := &Driver{Host: start(again)}
	d.waitWiped(t)
	if want := []string{"24 MiB-64 MiB"}; !slices.Equal(again.spans, want) {
		t.Errorf("the next driver zeroed %q, want %q", again.spans, want)
	}
	must(t, d.Close(t.Context()))
}

// TestWipeKeepsExtentsOfMissingPV: the extents of a volume with a missing disk are not freed: its data would be readable when the disk
// returns.
func TestWipeKeepsExtentsOfMissingPV(t *testing.T) {
	node := newNode()
	b := fakeFixture(node)
	release := node.HoldWipes()
	d := b.Start(t)
	v := d.create(t, b.spec("v", 8*lvm.MiB))
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
	must(t, d.Delete(t.Context(), v.ID))
	must(t, d.Close(t.Context()))
	release()
	missing(true)
	d = b.Start(t)
	time.Sleep(50 * time.Millisecond)
	if m := d.Metrics(); m.Volumes[lvm.StateDeleting] != 1 || m.WipeBacklog != v.Size {
		t.Errorf("with a missing disk: deleted volumes %v, wipe backlog %s", m.Volumes, m.WipeBacklog)
	}
	missing(false)
	d.waitWiped(t)
}

// TestWipeKeepsUnreachedRAIDLegs: nor are those of a RAID volume with a leg that failed, or was missing at activation, and whose disk is
// back: the zeroes did not reach that leg.
func TestWipeKeepsUnreachedRAIDLegs(t *testing.T) {
	for _, legs := range []string{"AD", "A-"} {
		node := newNode()
		b := fakeFixture(node)
		d := b.Start(t)
		spec := b.spec("v", 8*lvm.MiB)
		spec.Class.Layout = lvm.LayoutRAID1
		v := d.create(t, spec)
		device, err := d.Activate(t.Context(), v.ID, v.UUID)
		must(t, err)
		node.SetStatus(device, "raid", "raid1 2 "+legs+" 16384/16384 idle 0 0 -")
		must(t, d.Delete(t.Context(), v.ID))
		time.Sleep(50 * time.Millisecond)
		if m := d.Metrics(); m.Volumes[lvm.StateDeleting] != 1 {
			t.Fatalf("with the legs %s: deleted volumes %v", legs, m.Volumes)
		}
		node.SetStatus(device, "raid", "raid1 2 AA 16384/16384 idle 0 0 -")
		d.waitWiped(t)
	}
}
