package engine

import (
	"context"
	"errors"
	"log/slog"
	"slices"

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
