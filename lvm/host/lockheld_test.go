package host

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// forgetful counts the devices whose tables were to be dropped.
type forgetful struct {
	lvm.Kernel
	asked int
}

func (k *forgetful) ClearInactiveTable(string) (bool, error) {
	k.asked++
	return true, nil
}

// TestForgetTablesWaits: a table that was loaded by a command that runs is not dropped: it is about to be taken into use.
func TestForgetTablesWaits(t *testing.T) {
	dir := t.TempDir()
	kernel := &forgetful{}
	h := NewHostOn(lvm.Config{LockDir: dir, Cluster: fixture.TestCluster}, lvm.Machine{Kernel: kernel})
	g := fixture.Holding(fixture.TestGroup("vg", []lvm.Run{{Start: 0, Count: 9}}), "a", 3, func(*lvm.Volume) {})
	g.LVs[0].Pool = "pool"
	g.LVs = append(g.LVs, lvm.LV{UUID: "pool", Name: "pool", Type: "thin-pool", Thin: &lvm.ThinPool{}})
	path := filepath.Join(dir, "V_vg")
	held, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600) // as lvm does
	fixture.Must(t, err)
	fixture.Must(t, unix.Flock(int(held.Fd()), unix.LOCK_EX))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if h.clearInactiveTables(ctx, g); kernel.asked != 0 {
		t.Error("tables are dropped under a command that works on the group")
	}
	fixture.Must(t, os.Remove(path)) // as lvm does when it gives the lock back
	fixture.Must(t, held.Close())
	if h.clearInactiveTables(t.Context(), g); kernel.asked == 0 {
		t.Error("nothing is dropped though nobody works on the group")
	}
	if fixture.Exists(path) {
		t.Error("the lock is still there")
	}
}

// TestLockVG: who waits for the lock does not take that of a file which is not there any more.
func TestLockVG(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "V_vg")
	first, err := lockVG(t.Context(), dir, "vg")
	fixture.Must(t, err)
	got := make(chan func(), 1)
	go func() {
		second, err := lockVG(t.Context(), dir, "vg")
		if err != nil {
			t.Error(err)
		}
		got <- second
	}()
	time.Sleep(250 * time.Millisecond) // it waits by now
	select {
	case <-got:
		t.Fatal("both have the lock")
	default:
	}
	first()
	second := <-got
	if held, err := lockHeld(dir, "vg"); err != nil || held == 0 {
		t.Errorf("lvm would not see that it is held: %s, %v", held, err)
	}
	second()
	if fixture.Exists(path) {
		t.Error("the file is still there")
	}
	if unlock, err := lockVG(t.Context(), "", "vg"); err != nil {
		t.Error(err)
	} else {
		unlock()
	}
}
