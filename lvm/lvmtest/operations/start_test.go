package operations

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
	"github.com/nodelvm/nodelvm/report"
)

// TestVGAppearsAfterStart: the driver also recovers a group whose disks appear after the start.
func TestVGAppearsAfterStart(t *testing.T) {
	node := hosttest.NewNode()
	b := hosttest.OnFake(node)
	killed := &hosttest.Driver{} // during a wipe, and before it could tag a volume that it had returned
	killed.Host = node.HostOn(killed.Config(hosttest.Unsettled), lvm.Machine{Kernel: &hosttest.ZeroRecorder{Kernel: node.Kernel(), StopAt: 4 * lvm.MiB}})
	hosttest.Must(t, killed.Start(t.Context()))
	deleted := killed.MustCreate(t, b.Spec("deleted", 8*lvm.MiB))
	kept := killed.MustCreate(t, b.Spec("kept", 8*lvm.MiB))
	hosttest.Must(t, killed.Delete(t.Context(), deleted.ID))

	plug := node.Unplug("vg-test")
	next := hosttest.StartDriver(t, node, hosttest.Unsettled)
	if groups := hosttest.Report(next.Host).Groups; slices.ContainsFunc(groups, func(g report.Group) bool { return g.Name == "vg-test" }) {
		t.Fatal("the group exists")
	}
	plug()
	next.WaitWiped(t)
	wait.For(t, time.Minute, "after the disks appeared the created volume is ready", func() bool {
		m := hosttest.Report(next.Host)
		return hosttest.InState(m, lvm.StateReady) == 1 && hosttest.InState(m, lvm.StateCreating) == 0
	})
	if now, err := next.Lookup(t.Context(), kept.ID); err != nil || now != kept {
		t.Errorf("the created volume %+v became %+v, %v", kept, now, err)
	}
}

// TestUnfinishedVolumeInUse: the driver completes an unfinished volume that a program has open once that program closes it.
func TestUnfinishedVolumeInUse(t *testing.T) {
	node, d, v, zeroes := successor(t)
	device, _, err := node.Kernel().Device(lvmtest.DeviceUUID(string(v.ID.VG), v.UUID))
	hosttest.Must(t, err)
	release := node.Hold(device)
	hosttest.Must(t, d.Start(t.Context()))
	if _, err := d.Activate(t.Context(), v.ID, v.UUID); err == nil || len(zeroes.Spans()) > 0 {
		t.Errorf("while it is open, its activation returns %v, and %q are zeroed", err, zeroes.Spans())
	}
	release()
	wait.For(t, time.Minute, "the driver completes it after it is closed", func() bool { return hosttest.StateTags(node, "vg-test")["ready"] == 1 })
	d.MustActivate(t, v)
	hosttest.Must(t, d.Close(t.Context()))
}

// flushing is a kernel that records which disks it flushes.
type flushing struct {
	lvm.Kernel
	mu    sync.Mutex
	disks []string
}

func (f *flushing) Sync(paths []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.disks = append(f.disks, paths...)
	return f.Kernel.Sync(paths)
}

// TestStartFlushes: what a killed driver committed without a flush is flushed before the next driver relies on it.
func TestStartFlushes(t *testing.T) {
	node := hosttest.NewNode()
	f := &flushing{Kernel: node.Kernel()}
	hosttest.StartOn(t, node, lvm.Config{}, lvm.Machine{Kernel: f})
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range node.Groups() {
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
	node, b, d := hosttest.Started(t)
	source := d.MustCreate(t, b.Thin("source", 8*lvm.MiB, lvm.ID{}))
	half := d.MustCreate(t, b.Thin("half", 8*lvm.MiB, source.ID))
	sn := d.MustSnapshot(t, "s", source.ID)
	gone := d.MustCreate(t, b.Spec("gone", 8*lvm.MiB))
	release := node.HoldWipes()
	hosttest.Must(t, d.Delete(t.Context(), gone.ID))
	hosttest.Must(t, d.Close(t.Context()))
	release()
	node.Change("vg-test", func(g *lvm.Group) {
		for i := range g.LVs {
			if name := g.LVs[i].Name; name == half.ID.LV || name == sn.ID.LV {
				g.LVs[i].Tags[slices.Index(g.LVs[i].Tags, "nodelvm.state=ready")] = "nodelvm.state=creating"
			}
		}
	})
	putBack := node.LoseDisk("vg-test", 5)
	before := len(node.Commands())
	d = b.Start(t)
	time.Sleep(300 * time.Millisecond)
	for _, c := range node.Commands()[before:] {
		if c.Name != "fullreport" {
			t.Errorf("with a missing disk, a start runs %s %q", c.Name, c.Args)
		}
	}
	putBack()
	d.WaitWiped(t)
	wait.For(t, time.Minute, "with the disk back, the leftovers go", func() bool { return hosttest.StateTags(node, "vg-test")["creating"] == 0 })
}

// TestUnfinishedWithLostDisk: the driver does not blank an unfinished volume while a disk of its group is missing: that disk
// may have newer metadata.
func TestUnfinishedWithLostDisk(t *testing.T) {
	node, d, v, zeroes := successor(t)
	b := hosttest.OnFake(node)
	putBack := node.LoseDisk("vg-test", 5)
	hosttest.Must(t, d.Start(t.Context()))
	if len(zeroes.Spans()) > 0 {
		t.Errorf("with a missing disk, %q were zeroed", zeroes.Spans())
	}
	hosttest.Refused(t, "the same request", lvm.KindBusy)(d.Create(t.Context(), b.Spec("v", 64*lvm.MiB)))
	putBack()
	if now := d.MustCreate(t, b.Spec("v", 64*lvm.MiB)); now != v {
		t.Errorf("the created volume %+v became %+v", v, now)
	}
	hosttest.Must(t, d.Close(t.Context()))
}

// TestStartResumesManagedDevices: a start changes only suspended managed volumes.
func TestStartResumesManagedDevices(t *testing.T) {
	node, b, d := hosttest.Started(t)
	v := d.MustCreate(t, b.Spec("a", 8*lvm.MiB))
	d.MustCreate(t, b.Spec("b", 8*lvm.MiB))
	device := d.MustDevice(t, v)
	d.Stop(t)
	node.Suspend(device)
	before := len(node.Commands())
	b.Start(t)
	commands := slices.DeleteFunc(node.Commands()[before:], func(c lvm.Command) bool { return c.Name == "fullreport" })
	if len(commands) != 1 || !slices.Contains(commands[0].Args, "--refresh") || commands[0].Args[len(commands[0].Args)-1] != "vg-test/"+v.ID.LV {
		t.Errorf("the start ran %+v", commands)
	}
	if b.Suspended(t, device) {
		t.Error("the device is suspended")
	}
}

// TestDevicesAreResumedBeforeTheStart: a driver that does not know its cluster yet resumes the devices of the cluster that the node was
// in last, and of no other. A failure is retried.
func TestDevicesAreResumedBeforeTheStart(t *testing.T) {
	node := hosttest.NewNode()
	b := hosttest.OnFake(node)
	devices := map[string]string{}
	for _, cluster := range []string{hosttest.Cluster, "another"} {
		d := &hosttest.Driver{Host: node.Host(lvm.Config{Cluster: cluster})}
		hosttest.Must(t, d.Start(t.Context()))
		devices[cluster] = d.MustActivate(t, d.MustCreate(t, b.Spec("v-"+cluster, 8*lvm.MiB)))
		d.Stop(t)
		node.Suspend(devices[cluster])
	}
	suspended := func(cluster string) bool { return b.Suspended(t, devices[cluster]) }
	h := node.Host(lvm.Config{LockDir: t.TempDir()})
	hosttest.Must(t, h.ResumeDevices(t.Context(), ""))
	if !suspended(hosttest.Cluster) {
		t.Error("a device is resumed although its cluster is unknown")
	}
	node.Fail(lvmtest.Fault{})
	hosttest.Must(t, h.ResumeDevices(t.Context(), hosttest.Cluster))
	wait.For(t, time.Minute, "the device is resumed", func() bool { return !suspended(hosttest.Cluster) })
	if !node.Tripped() || !suspended("another") {
		t.Errorf("a command failed: %t; the other cluster's device is suspended: %t", node.Tripped(), suspended("another"))
	}
	h.SetCluster(hosttest.Cluster)
	hosttest.Must(t, h.Start(t.Context()))
	if !suspended("another") {
		t.Error("the start resumed another cluster's device")
	}
	hosttest.Must(t, h.Close(t.Context()))
}

// TestStartRetriesToResume: a device that the start cannot resume is resumed later.
func TestStartRetriesToResume(t *testing.T) {
	node, b, d := hosttest.Started(t)
	v := d.MustCreate(t, b.Spec("a", 8*lvm.MiB))
	device := d.MustActivate(t, v)
	d.Stop(t)
	node.Suspend(device)
	node.Fail(lvmtest.Fault{Call: 1}) // the first is the report that Start compares with the disks
	b.Start(t)
	if !b.Suspended(t, device) || !node.Tripped() {
		t.Fatalf("suspended: %v; the resume failed: %t", b.Suspended(t, device), node.Tripped())
	}
	wait.For(t, time.Minute, "the device is resumed", func() bool { return !b.Suspended(t, device) })
}
