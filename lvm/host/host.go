package host

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/ondisk"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
	"github.com/nodelvm/nodelvm/lvm/internal/reserve"
	"github.com/nodelvm/nodelvm/lvm/internal/zeroed"
)

// Host is LVM on this node. Its methods are safe for concurrent use.
type Host struct {
	cfg        lvm.Config
	log        *slog.Logger
	machine    lvm.Machine
	readyDelay time.Duration
	cacheTTL   time.Duration

	disks           *ondisk.CheckedReader
	cache           stateCache
	operations      oplock.InFlight    // by volume: at most one operation
	locks           *oplock.GroupLocks // by group's UUID: at most one writer
	ready           readyBatcher
	readyOperations oplock.InFlight // by group's UUID: a commit of ready tags that pods wait for
	reserved        reserve.Table
	wiper           wiper
	zeroing         oplock.Turns // for new volumes
	zeroed          zeroed.Watch // which free extents are known to be zero
	seen            seenGroups   // groups that the driver checked for what an earlier process left
	groups          sync.Map     // Class.Group -> UUID of the group that served it last
	instance        *lvmcmd.InstanceLock
	preparing       sync.Mutex                        // held by Prepare
	blank           map[ondisk.BlockDevice]bool       // found by the last Prepare
	declarations    atomic.Pointer[[]lvm.Declaration] // of the last Prepare
	poolExtensions  extensionCounts
	emptied         emptyPools
	commands        *lvmcmd.CommandFiles
	undo            func() // unmounts what NewHost mounted

	tasks *oplock.Tasks // work that outlives the call that started it
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
	h := NewHostOn(cfg, lvm.Machine{
		Runner: lvmcmd.Command{SystemDir: cfg.SystemDir, Devices: dm.DeviceDirOf(cfg), Observe: cfg.Observe, Reports: make(chan struct{}, lvmcmd.MaxReports), Files: files},
		Kernel: dm.Kernel{Sys: "/sys", Proc: "/proc", Dev: "/dev"},
		Reader: &ondisk.Disks{},
	})
	h.commands, h.undo = files, undo
	return h, nil
}

// NewHostOn returns a Host on a machine other than the real one, for tests.
func NewHostOn(cfg lvm.Config, machine lvm.Machine) *Host {
	h := &Host{cfg: cfg, log: cmp.Or(cfg.Log, slog.Default()), machine: machine, commands: &lvmcmd.CommandFiles{}, undo: func() {}}
	h.readyDelay, h.cacheTTL = cmp.Or(cfg.ReadyDelay, time.Second), cmp.Or(cfg.CacheTTL, defaultCacheTTL)
	h.locks = oplock.NewGroupLocks(cmp.Or(cfg.LockTimeLimit, 2*time.Minute), h.log, h.seen.name)
	h.tasks = oplock.NewTasks()
	h.zeroed.Begin(zeroed.Files{Log: h.log}, h.tasks.StartLater) // until Start it uses no files: they belong to the node driver
	h.disks = &ondisk.CheckedReader{Direct: machine.Reader, Report: h.report, Later: h.tasks.Start, Log: h.log}
	return h
}

// Ready checks that LVM's metadata is readable and device-mapper available. It starts no process while it can read the disks
// directly.
func (h *Host) Ready(ctx context.Context) error {
	if err := h.machine.Kernel.Ready(); err != nil {
		return err
	}
	_, err := h.cachedState(ctx)
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
		if err := h.markRestReady(ctx); err != nil {
			h.log.Warn("cannot tag new volumes as ready; the next start retries", "error", err)
		}
	})
	err := errors.Join(oplock.Await(ctx, &last), h.tasks.Drain(ctx))
	if err == nil {
		h.zeroed.SaveAll()
		h.commands.Release()
		h.instance.Release()
		h.undo()
	}
	return err
}

// readState reads the node's volume groups and adds what withKnowledge knows.
func (h *Host) readState(ctx context.Context) (lvm.State, error) {
	s, err := h.readDisks(ctx)
	if err != nil {
		return lvm.State{}, err
	}
	return h.withKnowledge(s), nil
}

// withKnowledge adds to a state what the disks do not hold: the volumes that requests got before their ready tag, the blocked
// groups, the overcommitted pools, and the free extents that are known to be zero.
func (h *Host) withKnowledge(s lvm.State) lvm.State {
	s = h.ready.withReady(s)
	s.Groups = slices.Clone(s.Groups) // other reads share them
	for i, g := range s.Groups {
		s.Groups[i] = h.withOvercommit(g)
		h.zeroed.Show(&s.Groups[i])
		if _, hung := h.locks.BlockedFor(g.UUID); hung != nil {
			s.Groups[i].Problem = hung.Error()
		}
	}
	return s
}

// readDisks reads the disks directly, or, if that fails, through LVM's report, which takes one process. It recovers a new group
// in the background: its disk appeared after the start.
func (h *Host) readDisks(ctx context.Context) (lvm.State, error) {
	ticket := h.zeroed.Reading()
	s, err := h.disks.Read(ctx)
	if err != nil {
		return lvm.State{}, lvm.Errorf(lvm.KindInternal, "cannot read the volume groups of this node: %w", err)
	}
	h.zeroed.Read(ticket, s)
	for _, g := range h.seen.newGroups(s) {
		h.tasks.Start(func(ctx context.Context) { h.recoverWhenPossible(ctx, g, func() {}) })
	}
	return h.withNodeProblems(s), nil
}

// report runs LVM's report on these devices.
func (h *Host) report(ctx context.Context, devices []string) (lvm.State, error) {
	if len(devices) == 0 {
		return lvm.State{}, nil
	}
	report, err := h.runLVM(ctx, lvmcmd.ReportArgs(devices))
	if err != nil {
		return lvm.State{}, err
	}
	return ondisk.ParseReport(bytes.NewReader(report))
}
