package host

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/groupsnap"
	"github.com/nodelvm/nodelvm/lvm/internal/health"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/ondisk"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
	"github.com/nodelvm/nodelvm/lvm/internal/prepare"
	"github.com/nodelvm/nodelvm/lvm/internal/recovery"
	"github.com/nodelvm/nodelvm/lvm/internal/reserve"
	"github.com/nodelvm/nodelvm/lvm/internal/thindelta"
	"github.com/nodelvm/nodelvm/lvm/internal/thinpool"
	"github.com/nodelvm/nodelvm/lvm/internal/wipe"
)

// Host is LVM on this node. Its methods are safe for concurrent use.
type Host struct {
	cfg        lvm.Config
	log        *slog.Logger
	tasks      *oplock.Tasks   // work that outlives the call that started it
	operations oplock.InFlight // by volume: at most one operation
	engine     *engine.Engine
	ready      *engine.ReadyTags
	reserved   reserve.Table
	wiper      *wipe.Wiper
	pools      *thinpool.Manager
	recovery   *recovery.Recovery

	groupSnapshots *groupsnap.Maker
	comparing      chan struct{} // one comparison of thin volumes at a time: a pool has one metadata snapshot

	preparer *prepare.Preparer
	health   health.Checker
	groups   sync.Map // Class.Group -> UUID of the group that served it last
	instance *lvmcmd.InstanceLock
	disks    *ondisk.Disks // of the real machine; without a record elsewhere
	replays  sync.Map      // UUIDs of read-only copies: whatever their replay wrote, it wrote to the device that they have now
	openings oplock.Exclusion
	undo     func() // unmounts what NewHost mounted
}

// NewHost prepares LVM's configuration. It changes no volume.
func NewHost(cfg lvm.Config) (*Host, error) {
	if cfg.SystemDir == "" {
		return nil, lvm.Errorf(lvm.KindInvalid, "Config.SystemDir names no directory for LVM's configuration")
	}
	if err := lvmcmd.WriteConfig(cfg); err != nil {
		return nil, lvm.Errorf(lvm.KindInternal, "%w", err)
	}
	undo, err := dm.DeviceDirOf(cfg).Prepare()
	if err != nil {
		cmp.Or(cfg.Log, slog.Default()).Warn("LVM may not be able to create volumes", "error", err)
	}
	files := &lvmcmd.CommandFiles{}
	if !cfg.AdminCLI {
		files.Dir = cfg.LockDir
	}
	disks := &ondisk.Disks{Accepted: recordOf(cfg)}
	h := newHostOn(cfg, disks, lvm.Machine{
		Runner: lvmcmd.Command{SystemDir: cfg.SystemDir, Devices: dm.DeviceDirOf(cfg), Observe: cfg.Observe, Reports: make(chan struct{}, lvmcmd.MaxReports), Files: files},
		Kernel: ondisk.Kernel{Kernel: dm.Kernel{Sys: "/sys", Proc: "/proc", Dev: "/dev"}},
		Reader: disks,
		Delta:  thindelta.Command{},
	})
	h.engine.Commands, h.undo = files, undo
	return h, nil
}

// NewHostOn returns a Host on a machine other than the real one, for tests.
func NewHostOn(cfg lvm.Config, machine lvm.Machine) *Host {
	return newHostOn(cfg, &ondisk.Disks{}, machine)
}

func newHostOn(cfg lvm.Config, disks *ondisk.Disks, machine lvm.Machine) *Host {
	tasks := oplock.NewTasks()
	e := engine.New(cfg, machine, tasks)
	h := &Host{cfg: cfg, log: e.Log, tasks: tasks, engine: e, disks: disks, health: health.Checker{Engine: e}, undo: func() {}}
	e.Replaced = func(uuid string) { h.replays.Delete(uuid) }
	h.ready = engine.NewReadyTags(e, tasks)
	h.wiper = wipe.New(e, tasks)
	h.pools = thinpool.New(e, tasks, &h.reserved)
	h.preparer = prepare.New(e, tasks, h.pools, disks)
	h.groupSnapshots = h.newGroupSnapshots()
	h.comparing = make(chan struct{}, 1)
	h.recovery = recovery.New(e, tasks, h.wiper, h.groupSnapshots, h.recoverRound, h.operations.Has)
	return h
}

// Ready checks that LVM's metadata is readable and device-mapper available. It starts no process while it can read the disks
// directly.
func (h *Host) Ready(ctx context.Context) error {
	if err := h.engine.Machine.Kernel.Ready(); err != nil {
		return err
	}
	_, err := h.engine.CachedState(ctx)
	return err
}

// Close refuses new operations (KindBusy), waits for those under way, tags new volumes as ready, and stops wiping at the next
// chunk; the next Start resumes it. The error is ctx's: then something is still running.
func (h *Host) Close(ctx context.Context) error {
	h.tasks.Stop()
	if err := h.operations.Close(ctx); err != nil {
		return err
	}
	var last sync.WaitGroup
	last.Go(func() {
		if err := h.ready.TagRest(ctx); err != nil {
			h.log.Warn("cannot tag new volumes as ready; the next start retries", "error", err)
		}
	})
	err := errors.Join(oplock.Await(ctx, &last), h.tasks.Drain(ctx))
	if err == nil {
		h.engine.Close()
		h.instance.Release()
		h.undo()
	}
	return err
}

// Prepare creates or extends the declared groups from devices that are proven blank. It reports for each device of the node
// what it did, or why it ignored the device, and for each group why it cannot prepare the group. KindInvalid: the declarations
// are wrong, and Prepare did nothing. Without changes it starts no process, except for the signatures of selected devices that
// are not blank. It creates pools only on a Host that knows its cluster.
func (h *Host) Prepare(ctx context.Context, p lvm.Preparation) (lvm.PrepareReport, error) {
	return h.preparer.Prepare(ctx, p)
}

// ExtendThinPools extends the thin pools that exceed their autoextend threshold, and removes those that have been empty for
// long enough. A pool that needs nothing costs one query of the kernel and no process. The error joins those of the pools. A
// blocked group delays no other.
func (h *Host) ExtendThinPools(ctx context.Context) error { return h.pools.ExtendDue(ctx) }

// Modules has the kernel modules of a node.
type Modules interface {
	IsLoaded(name string) bool   // the kernel has it, loaded or built in
	IsLoadable(name string) bool // it has a file below /lib/modules; the kernel may refuse it. Device-mapper's modules alone
}

// ReadModules reads the lists of modules of the kernel with this release, without a process. sys is the mount point of sysfs, dir
// /lib/modules.
func ReadModules(sys, dir, release string) (Modules, error) {
	return dm.Modules{Sys: sys, Dir: dir, Release: release}.Read()
}
