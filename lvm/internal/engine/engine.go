package engine

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/ondisk"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
	"github.com/nodelvm/nodelvm/lvm/internal/zeroed"
)

// Engine reads, locks and changes this node's volume groups. Its methods are safe for concurrent use; those that change a group
// require its lock.
type Engine struct {
	Config   lvm.Config
	Log      *slog.Logger
	Machine  lvm.Machine
	Locks    *oplock.GroupLocks // by group's UUID: at most one writer
	Zeroed   zeroed.Watch       // which free extents are known to be zero
	Untagged untaggedVolumes
	LastRead lastRead
	Commands *lvmcmd.CommandFiles
	Disks    *ondisk.CheckedReader
	Replaced func(uuid string) // unless nil: a volume is about to get another device
	bindings oplock.Exclusion  // by group's UUID: publications of raw devices, and reactivations
	targets  targets
	cache    cache[lvm.State]
	mapped   cache[Mapped]
	cacheTTL time.Duration
}

// New returns the engine of a machine. Its background work belongs to tasks.
func New(cfg lvm.Config, machine lvm.Machine, tasks *oplock.Tasks) *Engine {
	e := &Engine{Config: cfg, Log: cmp.Or(cfg.Log, slog.Default()), Machine: machine, Commands: &lvmcmd.CommandFiles{}, LastRead: lastRead{noted: make(chan struct{}, 1)}, cacheTTL: cmp.Or(cfg.CacheTTL, defaultCacheTTL)}
	e.Locks = oplock.NewGroupLocks(cmp.Or(cfg.LockTimeLimit, 2*time.Minute), e.Log, e.LastRead.Name)
	e.Zeroed.Begin(zeroed.Files{Log: e.Log}, tasks.StartLater) // until Check it uses no files: they belong to the node driver
	e.Disks = &ondisk.CheckedReader{Direct: machine.Reader, Report: e.report, Later: tasks.Start, Log: e.Log}
	return e
}

// Check compares the direct read of the disks with LVM's report, and saves from now on which free extents are zero. It is for the
// node's driver alone.
func (e *Engine) Check(ctx context.Context, tasks *oplock.Tasks) {
	e.Disks.Check(ctx)
	e.Zeroed.Begin(zeroed.Files{Dir: e.Config.BackupDir, Log: e.Log}, tasks.StartLater)
}

// Close saves what the engine knows, and ends the use of LVM's lock files.
func (e *Engine) Close() {
	e.Zeroed.SaveAll()
	e.Commands.Release()
}
