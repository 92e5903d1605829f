package recovery

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// forgetful counts the devices whose inactive tables the driver clears.
type forgetful struct {
	lvm.Kernel
	asked int
}

func (k *forgetful) ClearInactiveTable(string) (bool, error) {
	k.asked++
	return true, nil
}

// TestInactiveTableOfRunningCommandIsKept: the driver does not clear the inactive table of a running command, which is about to resume it.
func TestInactiveTableOfRunningCommandIsKept(t *testing.T) {
	dir := t.TempDir()
	kernel := &forgetful{}
	tasks := oplock.NewTasks()
	r := New(engine.New(lvm.Config{LockDir: dir, Cluster: fixture.TestCluster}, lvm.Machine{Kernel: kernel}, tasks), tasks, nil, nil, nil, nil)
	g := fixture.Holding(fixture.TestGroup("vg", []lvm.Run{{Start: 0, Count: 9}}), "a", 3, func(*lvm.Volume) {})
	g.LVs[0].Pool = "pool"
	g.LVs = append(g.LVs, lvm.LV{UUID: "pool", Name: "pool", Type: "thin-pool", Thin: &lvm.ThinPool{}})
	path := filepath.Join(dir, "V_vg")
	held, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600) // as lvm does
	fixture.Must(t, err)
	fixture.Must(t, unix.Flock(int(held.Fd()), unix.LOCK_EX))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if r.clearInactiveTables(ctx, g, fixture.TestCluster); kernel.asked != 0 {
		t.Error("inactive tables are cleared while a command works on the group")
	}
	fixture.Must(t, os.Remove(path)) // as lvm does when it releases the lock
	fixture.Must(t, held.Close())
	if r.clearInactiveTables(t.Context(), g, fixture.TestCluster); kernel.asked == 0 {
		t.Error("no table is cleared although no command works on the group")
	}
	if fixture.Exists(path) {
		t.Error("the lock is still there")
	}
}
