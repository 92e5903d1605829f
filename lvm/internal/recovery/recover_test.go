package recovery

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// plugged is a machine whose group appears when its disk is plugged in, with the snapshot that an interrupted command left.
type plugged struct {
	fixture.Kernel
	mu    sync.Mutex
	state lvm.State
	ran   []string
	began chan struct{} // closed when the first command runs
}

func (m *plugged) plug(s lvm.State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = s
}

func (m *plugged) Read(context.Context) (lvm.State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state, nil
}

func (m *plugged) Run(_ context.Context, argv []string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.ran) == 0 {
		close(m.began)
	}
	m.ran = append(m.ran, argv[0])
	return nil, nil
}

func (m *plugged) commands() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.ran)
}

func (*plugged) Sync([]string) error                     { return nil }
func (*plugged) Devices() ([]lvm.Device, error)          { return nil, nil }
func (*plugged) Device(string) (string, bool, error)     { return "", false, nil }
func (*plugged) ClearInactiveTable(string) (bool, error) { return false, nil }
func (*plugged) Remove(string) (bool, error)             { return false, nil }

// TestReadStartsNoRecovery: a read that first shows a group starts no work in it; recovery, which Start began, does.
func TestReadStartsNoRecovery(t *testing.T) {
	g := fixture.TestGroup("vg", []lvm.Run{{Start: 0, Count: 90}})
	g.LVs = append(g.LVs, lvm.LV{Name: lvm.SnapshotName("left"), UUID: "left", Type: "linear", Extents: 1,
		Tags: lvm.SnapshotTags(lvm.Snapshot{ID: lvm.ID{VG: g.UUID, LV: lvm.SnapshotName("left")}, Name: "left", Source: lvm.ID{VG: g.UUID, LV: "v"}, Cluster: fixture.TestCluster, State: lvm.StateCreating})})
	g.Decode()
	m := &plugged{began: make(chan struct{})}
	tasks := oplock.NewTasks()
	e := engine.New(lvm.Config{Cluster: fixture.TestCluster, CacheTTL: time.Nanosecond}, lvm.Machine{Runner: m, Kernel: m, Reader: m}, tasks)
	e.LastRead.Begin(lvm.State{})
	m.plug(lvm.State{Groups: []lvm.Group{g}})
	for _, read := range []func(context.Context) (lvm.State, error){e.CachedState, e.ReadState, e.ReadDisks} {
		if s, err := read(t.Context()); err != nil || len(s.Groups) != 1 {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	idle, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := tasks.Drain(idle); err != nil || len(m.commands()) > 0 {
		t.Errorf("the reads started work: %v, %q", err, m.commands())
	}

	r := New(e, tasks, nil, nil, nil, func(string) bool { return false })
	tasks.Start(r.recoverArrivals)
	select {
	case <-m.began:
	case <-time.After(wait.Limit(time.Minute)):
		t.Error("the group that appeared is not recovered")
	}
	tasks.Stop()
	if err := tasks.Drain(idle); err != nil {
		t.Error(err)
	}
	if ran := m.commands(); !slices.Contains(ran, "lvremove") {
		t.Errorf("recovery ran %q", ran)
	}
}

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
