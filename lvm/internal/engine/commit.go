package engine

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

// Change is commands that change one group.
type Change struct {
	Group lvm.Group // as read under its lock
	Steps []lvmcmd.Step
	Legs  []lvm.LV // whose devices the steps create; see runAfterCleanup
	// OnKnownZeroes: a user reads the allocated extents as soon as the one step ends, and the plan relies on what the group was known to
	// hold at Group's seqno.
	OnKnownZeroes bool
}

// Committed is what the disks hold after a change.
type Committed struct {
	State   lvm.State
	uuid    lvm.VGUUID // the group's
	Failure error      // of the commands. It decides nothing: LVM may commit and exit with an error, or exit with 0 and commit nothing.
	Foreign int64      // OnKnownZeroes: commits of other programs between the last check and this read
}

// ErrChanged is the failure of a change on known zeroes that other programs' commands prevent. The driver has changed nothing.
var ErrChanged = lvm.Errorf(lvm.KindBusy, "another program changed or locked the volume group meanwhile")

// Commit runs the commands of a change and reads the disks for what they committed; failure is set even if that fails. The
// caller holds the group's lock, verifies the result, and then flushes it: the change counts once it survives a power cut.
func (e *Engine) Commit(ctx context.Context, c Change) (done Committed, err error) {
	tags := e.nodeTags(c.Group)
	done.uuid, done.Failure = c.Group.UUID, e.runAfterCleanup(ctx, c)
	done.State, err = e.ReadDisks(ctx)
	if err != nil || !c.OnKnownZeroes || done.Failure != nil {
		return done, err
	}
	if now, absent := done.Group(); absent == nil {
		own := lvmcmd.CommitsOf(c.Steps)
		if len(tags) > 0 && slices.Contains(now.Tags, tags[0]) {
			own++
		}
		done.Foreign = now.Seqno - c.Group.Seqno - own
	}
	return done, nil
}

// Group returns the group after the change.
func (c Committed) Group() (lvm.Group, error) { return c.State.FindGroup(c.uuid) }

// Cause explains why the disks lack the change.
func (c Committed) Cause() error { return OrNoEffect(c.Failure) }

// Warn logs that the disks have the change although LVM reported an error.
func (c Committed) Warn(log *slog.Logger, volume string) {
	if c.Failure != nil {
		log.Warn("LVM exited with an error but committed the change", "volume", volume, "error", c.Failure)
	}
}

// errNoEffect replaces the error of a command that exited with success.
var errNoEffect = errors.New("LVM exited with success but changed nothing; perhaps another program changed it meanwhile")

func OrNoEffect(failure error) error {
	if failure == nil {
		return errNoEffect
	}
	return failure
}

// Flush makes a commit survive a power cut: LVM writes with O_DIRECT, but does not flush the disks' caches.
func (e *Engine) Flush(g lvm.Group) error {
	if err := lvm.CheckResponsive(g); err != nil {
		return err
	}
	var paths []string
	for _, pv := range g.PVs {
		if pv.Device != "" {
			paths = append(paths, pv.Device)
		}
	}
	if err := e.Machine.Kernel.Sync(paths); err != nil {
		return lvm.Errorf(lvm.KindInternal, "volume group %s was changed, but the driver cannot flush its disks: %w", g.Name, err)
	}
	return nil
}

// Run runs a plan's steps, up to the first that fails. The caller holds the group's lock, and reads the disks for what really
// happened. KindBusy: a disk of the group is missing, duplicate or unresponsive, and run started nothing; KindConflict: LVM
// would refuse the commands until an admin changes the group.
func (e *Engine) Run(ctx context.Context, g lvm.Group, steps []lvmcmd.Step) error {
	return e.run(ctx, Change{Group: g, Steps: steps})
}

// run is Run, and on known zeroes it fails with ErrChanged if the group is no longer as planned.
func (e *Engine) run(ctx context.Context, c Change) error {
	g, steps := c.Group, c.Steps
	if err := runnable(g, steps); err != nil {
		return err
	}
	if why := e.OtherNodeReason(g); why != "" {
		return lvm.Errorf(lvm.KindConflict, "the driver ignores volume group %s: %s", g.Name, why)
	}
	if err := e.Commands.Acquire(ctx, g.Name); err != nil {
		return err
	}
	defer e.mapped.invalidate()
	defer e.cache.invalidate()
	commits := int64(0)
	e.Zeroed.Started(g.UUID)
	defer func() { e.Zeroed.Ended(g.UUID, commits) }()
	taken := int64(0)
	if slices.ContainsFunc(steps, lvmcmd.Step.Commits) {
		taken = e.tagGroupWithNode(ctx, g)
	}
	if c.OnKnownZeroes {
		if err := e.checkUnchanged(ctx, g.UUID, g.Seqno+taken); err != nil {
			return err
		}
	}
	for _, s := range steps {
		e.Locks.NoteCommand(g.UUID, strings.Join(s.Argv, " "))
		if _, err := e.runLVM(ctx, s.Argv); err != nil {
			if c.OnKnownZeroes && lvmcmd.IsLockTaken(err) {
				return ErrChanged
			}
			return err
		}
	}
	commits = taken + lvmcmd.CommitsOf(steps)
	return nil
}

// checkUnchanged reads the disks right before a command, which may have waited for earlier ones since its plan.
func (e *Engine) checkUnchanged(ctx context.Context, uuid lvm.VGUUID, seqno int64) error {
	s, err := e.ReadDisks(ctx)
	if err != nil {
		return err
	}
	if g, err := s.FindGroup(uuid); err != nil || g.Seqno != seqno {
		return ErrChanged
	}
	return nil
}

// runLVM is the only function that runs an LVM command. Without --devices LVM would scan every device of the node.
func (e *Engine) runLVM(ctx context.Context, argv []string) ([]byte, error) {
	if i := slices.Index(argv, lvmcmd.DevicesOption); i < 0 || i+1 >= len(argv) || strings.Trim(argv[i+1], ",") == "" {
		return nil, lvm.Errorf(lvm.KindInternal, "refusing to run lvm %s: its --devices names no device", argv[0])
	}
	return e.Machine.Runner.Run(ctx, argv)
}

// runnable refuses a group that LVM must not work on now.
func runnable(g lvm.Group, steps []lvmcmd.Step) error {
	if err := lvm.CheckResponsive(g); err != nil {
		return err
	}
	if !slices.ContainsFunc(steps, lvmcmd.Step.Commits) {
		return lvm.CheckNoDuplicatePV(g)
	}
	if g.Closed {
		return lvm.Errorf(lvm.KindConflict, "volume group %s cannot be changed: %s", g.Name, g.Problem)
	}
	return lvm.CheckNoNewMissingPV(g)
}

// runAfterCleanup runs steps that create the devices of legs, of a RAID volume or of a thin pool. If LVM refuses them, it
// removes the stale devices of the legs and runs the steps again.
func (e *Engine) runAfterCleanup(ctx context.Context, c Change) error {
	failure := e.run(ctx, c)
	var refusal *lvm.ExitError
	if errors.As(failure, &refusal) && refusal.Code > 0 && e.removeStaleLegs(c.Group, c.Legs) {
		failure = e.run(ctx, c)
	}
	return failure
}

// removeStaleLegs removes the device-mapper devices of legs unless they are open. A killed activation or deactivation leaves such devices, and
// LVM refuses to activate the volume while they exist. It reports whether it removed any.
func (e *Engine) removeStaleLegs(g lvm.Group, legs []lvm.LV) bool {
	dropped := false
	for _, leg := range legs {
		for _, layer := range []string{"-tpool", "", "-tmeta", "-tdata"} { // the suffixes are those of a thin pool and its metadata and data
			removed, err := e.Machine.Kernel.Remove(lvm.DeviceUUID(g.UUID, leg.UUID) + layer)
			if err != nil && !errors.Is(err, unix.EBUSY) {
				e.Log.Warn("cannot remove the device of a leg that an unfinished activation left", "vg", g.Name, "leg", leg.Name, "error", err)
			}
			dropped = dropped || removed
		}
	}
	return dropped
}
