package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/reserve"
)

// TestNewDriverWaitsForCommandOfFormer: a new driver waits for the command of a killed one, and only in that group.
func TestNewDriverWaitsForCommandOfFormer(t *testing.T) {
	dir := t.TempDir()
	script, end := filepath.Join(dir, "lvm"), filepath.Join(dir, "end")
	// The process in the script's background has its standard input, as lvm has when the driver is killed.
	fixture.Must(t, os.WriteFile(script, []byte("#!/bin/sh\nexec 3<&0\n(while ! test -e "+end+"; do sleep 0.01; done) >/dev/null 2>&1 &\n"), 0o700))
	killed := &lvmcmd.CommandFiles{Dir: dir}
	fixture.Must(t, killed.Acquire(t.Context(), "vg"))
	_, err := lvmcmd.Command{Path: script, Files: killed}.Run(t.Context(), []string{"lvcreate", "-n", "v", "--", "vg"})
	fixture.Must(t, err)
	killed.Release() // as the kernel does when the driver dies

	next := &lvmcmd.CommandFiles{Dir: dir}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := next.Acquire(short, "vg"); !errors.Is(err, context.DeadlineExceeded) || lvm.KindOf(err) != lvm.KindBusy {
		t.Errorf("the driver uses the group while the command runs: %v", err)
	}
	fixture.Must(t, next.Acquire(t.Context(), "other"))
	fixture.Must(t, os.WriteFile(end, nil, 0o600))
	fixture.Must(t, next.Acquire(t.Context(), "vg"))
	fixture.Must(t, next.Acquire(t.Context(), "vg"))
	next.Release()
}

func TestGroupOf(t *testing.T) {
	for want, argv := range map[string][]string{
		"vg":  {"lvcreate", "-y", "-n", "v", "--", "vg", "/dev/sda:0-1"},
		"vg2": {"lvchange", "-ay", "--", "vg2/v", "vg2/w"},
		"":    {"lvs", "--"},
	} {
		if got := lvmcmd.GroupOf(argv); string(got) != want {
			t.Errorf("%q names the group %q, want %q", argv, got, want)
		}
	}
}

// TestReservationBypassesCache: a reservation, and its end, shows at once, however old the cached state is.
func TestReservationBypassesCache(t *testing.T) {
	g := fixture.TestGroup("vg-data", []lvm.Run{{Start: 0, Count: 100}})
	h := NewHostOn(lvm.Config{CacheTTL: time.Hour}, lvm.Machine{Kernel: fixture.Kernel{}, Reader: &fixture.Scripted{States: []lvm.State{{Groups: []lvm.Group{g}}}}})
	spec := func(name string, extents int) lvm.Spec {
		return lvm.Spec{Name: name, Class: lvm.Class{Group: "vg-data"}, Required: lvm.Bytes(extents) * g.ExtentSize}
	}
	shows := func(extents lvm.Extents) {
		t.Helper()
		if c, err := h.Capacity(t.Context(), lvm.Class{Group: "vg-data"}); err != nil || c.Largest != g.Bytes(extents) {
			t.Errorf("capacity %s of %s, %v", c.Largest, g.Bytes(extents), err)
		}
	}
	shows(100)
	_, err := h.reserved.Plan(lvm.State{Groups: []lvm.Group{g}}, fixture.TestCluster, reserve.NewRequest(spec("a", 40), []lvm.Spec{spec("b", 50)}), true)
	fixture.Must(t, err)
	shows(10) // a is being created
	h.reserved.Drop(spec("a", 40))
	shows(50)
	h.reserved.Drop(spec("b", 50))
	shows(100)
}

// TestCloseWaitsForMaintenance: Close waits while the driver prepares disks or extends thin pools.
func TestCloseWaitsForMaintenance(t *testing.T) {
	h := NewHostOn(lvm.Config{LockDir: t.TempDir()}, lvm.Machine{})
	fixture.Must(t, h.AcquireInstanceLock(t.Context()))
	leave, err := h.tasks.Join()
	fixture.Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := h.Close(ctx); err == nil {
		t.Error("the Host closes while an operation runs")
	}
	if other, err := lvmcmd.LockInstance(ctx, h.cfg.LockDir); err == nil {
		other.Release()
		t.Error("another driver can start")
	}
	_, prepared := h.Prepare(t.Context(), lvm.Preparation{})
	for _, err := range []error{prepared, h.ExtendThinPools(t.Context())} {
		if lvm.KindOf(err) != lvm.KindBusy {
			t.Errorf("begin while the Host closes: %v", err)
		}
	}
	leave()
	fixture.Must(t, h.Close(t.Context()))
}

// TestSecondDriverWaits: a second driver waits until the first has ended.
func TestSecondDriverWaits(t *testing.T) {
	dir := t.TempDir()
	first, err := lvmcmd.LockInstance(t.Context(), dir)
	fixture.Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := lvmcmd.LockInstance(ctx, dir); lvm.KindOf(err) != lvm.KindBusy || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second driver: %v", err)
	}
	time.AfterFunc(50*time.Millisecond, first.Release)
	second, err := lvmcmd.LockInstance(t.Context(), dir)
	fixture.Must(t, err)
	second.Release()
}
