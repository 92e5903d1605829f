package engine

import (
	"context"
	"errors"
	"log/slog"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

// Change is commands that change one group.
type Change struct {
	Group lvm.Group // as read under its lock
	Steps []lvmcmd.Step
	Legs  []lvm.LV // whose devices the steps create; see runAfterCleanup
}

// Committed is what the disks hold after a change.
type Committed struct {
	State   lvm.State
	uuid    lvm.VGUUID // the group's
	Failure error      // of the commands. It decides nothing: LVM may commit and exit with an error, or exit with 0 and commit nothing.
}

// Commit runs the commands of a change and reads the disks for what they committed; failure is set even if that fails. The
// caller holds the group's lock, verifies the result, and then flushes it: the change counts once it survives a power cut.
func (e *Engine) Commit(ctx context.Context, c Change) (done Committed, err error) {
	done.uuid, done.Failure = c.Group.UUID, e.runAfterCleanup(ctx, c.Group, c.Legs, c.Steps)
	done.State, err = e.ReadDisks(ctx)
	return done, err
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
