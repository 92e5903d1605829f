package lvmtest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/host"
)

// TestVGAppearsAfterStart: the driver also recovers a group whose disks appear after the start.
func TestVGAppearsAfterStart(t *testing.T) {
	node := newNode()
	b := fakeFixture(node)
	killed := &Driver{} // during a wipe, and before it could tag a volume that it had returned
	killed.Host = node.hostOn(killed.config(unsettled), lvm.Machine{Kernel: &zeroing{kernel: kernel{node}, stopAt: 4 * lvm.MiB}})
	must(t, killed.Start(t.Context()))
	deleted := killed.create(t, b.spec("deleted", 8*lvm.MiB))
	kept := killed.create(t, b.spec("kept", 8*lvm.MiB))
	must(t, killed.Delete(t.Context(), deleted.ID))

	plug := node.Unplug("vg-test")
	next := node.driver(t, unsettled)
	if groups := next.Metrics().Groups; slices.ContainsFunc(groups, func(g host.GroupMetrics) bool { return g.Name == "vg-test" }) {
		t.Fatal("the group exists")
	}
	plug()
	next.waitWiped(t)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if m := next.Metrics(); m.Volumes[lvm.StateReady] == 1 && m.Volumes[lvm.StateCreating] == 0 {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("after the disks appeared: %v", m.Volumes)
		}
	}
	if now, err := next.Lookup(t.Context(), kept.ID); err != nil || now != kept {
		t.Errorf("the created volume %+v became %+v, %v", kept, now, err)
	}
}

// TestUnresponsiveDisk: the driver starts no command in a group with an unresponsive disk; when the disk answers, the group works
// again.
func TestUnresponsiveDisk(t *testing.T) {
	node, b, d := startedWith(t, unsettled)
	v := d.create(t, b.spec("v", 8*lvm.MiB))
	silence := func(is bool) { node.Change("vg-test", func(g *lvm.Group) { g.PVs[3].Unresponsive = is }) }
	silence(true)
	d.counted(t, "requests that would change the group", 0, func() {
		err := d.Delete(t.Context(), v.ID)
		wantKind(t, "delete", err, lvm.KindBusy)
		if err != nil && !strings.Contains(err.Error(), "is unresponsive") {
			t.Errorf("the error does not name the cause: %v", err)
		}
	})
	commands := len(node.Commands())
	if _, err := d.Activate(t.Context(), v.ID, v.UUID); err == nil {
		t.Error("the driver handed out a volume that it cannot tag as ready")
	}
	if n := len(node.Commands()); n != commands {
		t.Errorf("the first use started %d commands", n-commands)
	}
	silence(false)
	must(t, d.Delete(t.Context(), v.ID))
	d.waitWiped(t)
}

// TestUnfinishedVolumeInUse: the driver completes an unfinished volume that a program has open once that program closes it.
func TestUnfinishedVolumeInUse(t *testing.T) {
	node, d, v, zeroes := successor(t)
	device, _, err := kernel{node}.Device(deviceUUID(string(v.ID.VG), v.UUID))
	must(t, err)
	release := node.Hold(device)
	must(t, d.Start(t.Context()))
	if _, err := d.Activate(t.Context(), v.ID, v.UUID); err == nil || len(zeroes.spans) > 0 {
		t.Errorf("while it is open, its activation returns %v, and %q are zeroed", err, zeroes.spans)
	}
	release()
	for deadline := time.Now().Add(time.Minute); node.stateTags("vg-test")["ready"] != 1; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the driver does not complete it after it is closed")
		}
	}
	_, err = d.Activate(t.Context(), v.ID, v.UUID)
	must(t, err)
	must(t, d.Close(t.Context()))
}

// flushing is a kernel that records which disks it flushes.
type flushing struct {
	kernel
	mu    sync.Mutex
	disks []string
}

func (f *flushing) Sync(paths []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.disks = append(f.disks, paths...)
	return f.kernel.Sync(paths)
}

// TestStartFlushes: what a killed driver committed without a flush is flushed before the next driver relies on it.
func TestStartFlushes(t *testing.T) {
	node := newNode()
	f := &flushing{kernel: kernel{node}}
	h := node.hostOn(lvm.Config{Cluster: Cluster}, lvm.Machine{Kernel: f})
	must(t, h.Start(t.Context()))
	defer func() { must(t, h.Close(context.Background())) }()
	s, err := reader{node}.Read(t.Context())
	must(t, err)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range s.Groups {
		for _, pv := range g.PVs {
			if !slices.Contains(f.disks, pv.Device) {
				t.Errorf("%s was not flushed", pv.Device)
			}
		}
	}
}

// TestStartRemovesNothingWhilePVMissing: while a disk of the group is missing, a start removes nothing that an earlier driver left there: the
// commit would set the disk's MISSING flag permanently.
func TestStartRemovesNothingWhilePVMissing(t *testing.T) {
	node, b, d := started(t)
	source := d.create(t, b.thin("source", 8*lvm.MiB, lvm.ID{}))
	half := d.create(t, b.thin("half", 8*lvm.MiB, source.ID))
	sn, err := d.CreateSnapshot(t.Context(), lvm.SnapshotSpec{Name: "s", Source: source.ID})
	must(t, err)
	gone := d.create(t, b.spec("gone", 8*lvm.MiB))
	release := node.HoldWipes()
	must(t, d.Delete(t.Context(), gone.ID))
	must(t, d.Close(t.Context()))
	release()
	lost := lvm.PV{}
	node.Change("vg-test", func(g *lvm.Group) {
		for i := range g.LVs {
			if name := g.LVs[i].Name; name == half.ID.LV || name == sn.ID.LV {
				g.LVs[i].Tags[slices.Index(g.LVs[i].Tags, "nodelvm.state=ready")] = "nodelvm.state=creating"
			}
		}
		lost = g.PVs[5]
		g.PVs[5].Missing, g.PVs[5].Device = true, ""
	})
	before := len(node.Commands())
	d = b.Start(t)
	time.Sleep(300 * time.Millisecond)
	for _, c := range node.Commands()[before:] {
		if c.Name != "fullreport" {
			t.Errorf("with a missing disk, a start runs %s %q", c.Name, c.Args)
		}
	}
	node.Change("vg-test", func(g *lvm.Group) { g.PVs[5] = lost })
	d.waitWiped(t)
	for deadline := time.Now().Add(time.Minute); node.stateTags("vg-test")["creating"] > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("with the disk back, the leftovers still exist")
		}
	}
}

// TestUnfinishedWithLostDisk: the driver does not blank an unfinished volume while a disk of its group is missing: that disk
// may have newer metadata.
func TestUnfinishedWithLostDisk(t *testing.T) {
	node, d, v, zeroes := successor(t)
	b := fakeFixture(node)
	lost := ""
	lose := func(is bool) {
		node.Change("vg-test", func(g *lvm.Group) {
			pv := &g.PVs[5]
			if pv.Missing = is; is {
				lost, pv.Device = pv.Device, ""
			} else {
				pv.Device = lost
			}
		})
	}
	lose(true)
	must(t, d.Start(t.Context()))
	if len(zeroes.spans) > 0 {
		t.Errorf("with a missing disk, %q were zeroed", zeroes.spans)
	}
	_, err := d.Create(t.Context(), b.spec("v", 64*lvm.MiB))
	wantKind(t, "the same request", err, lvm.KindBusy)
	lose(false)
	if now := d.create(t, b.spec("v", 64*lvm.MiB)); now != v {
		t.Errorf("the created volume %+v became %+v", v, now)
	}
	must(t, d.Close(t.Context()))
}
