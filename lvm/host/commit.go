package host

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

// change is commands that change one group.
type change struct {
	group lvm.Group // as read under its lock
	steps []lvmcmd.Step
	legs  []lvm.LV // whose devices the steps create; see runAfterCleanup
}

// committed is what the disks hold after a change.
type committed struct {
	state   lvm.State
	uuid    string // the group's
	failure error  // of the commands. It decides nothing: LVM may commit and exit with an error, or exit with 0 and commit nothing.
}

// commit runs the commands of a change and reads the disks for what they committed; failure is set even if that fails. The
// caller holds the group's lock, verifies the result, and then flushes it: the change counts once it survives a power cut.
func (h *Host) commit(ctx context.Context, c change) (done committed, err error) {
	done.uuid, done.failure = c.group.UUID, h.runAfterCleanup(ctx, c.group, c.legs, c.steps)
	done.state, err = h.readDisks(ctx)
	return done, err
}

// group returns the group after the change.
func (c committed) group() (lvm.Group, error) { return c.state.FindGroup(c.uuid) }

// cause explains why the disks lack the change.
func (c committed) cause() error { return orNoEffect(c.failure) }

// warn logs that the disks have the change although LVM reported an error.
func (c committed) warn(log *slog.Logger, volume string) {
	if c.failure != nil {
		log.Warn("LVM exited with an error but committed the change", "volume", volume, "error", c.failure)
	}
}

// run runs a plan's steps, up to the first that fails. The caller holds the group's lock, and reads the disks for what really
// happened. KindBusy: a disk of the group is missing, duplicate or unresponsive, and run started nothing; KindConflict: LVM
// would refuse the commands until an admin changes the group.
func (h *Host) run(ctx context.Context, g lvm.Group, steps []lvmcmd.Step) error {
	if err := runnable(g, steps); err != nil {
		return err
	}
	if why := h.otherNodeReason(g); why != "" {
		return lvm.Errorf(lvm.KindConflict, "the driver ignores volume group %s: %s", g.Name, why)
	}
	if err := h.commands.Take(ctx, g.Name); err != nil {
		return err
	}
	defer h.cache.invalidate()
	commits := int64(0)
	h.zeroed.Started(g.UUID)
	defer func() { h.zeroed.Ended(g.UUID, commits) }()
	taken := int64(0)
	if slices.ContainsFunc(steps, lvmcmd.Step.Commits) {
		taken = h.tagGroupWithNode(ctx, g)
	}
	for _, s := range steps {
		h.locks.NoteCommand(g.UUID, strings.Join(s.Argv, " "))
		if _, err := h.runLVM(ctx, s.Argv); err != nil {
			return err
		}
	}
	commits = taken + lvmcmd.CommitsOf(steps)
	return nil
}

// runLVM is the only function that runs an LVM command. Without --devices LVM would scan every device of the node.
func (h *Host) runLVM(ctx context.Context, argv []string) ([]byte, error) {
	if i := slices.Index(argv, lvmcmd.DevicesOption); i < 0 || i+1 >= len(argv) || strings.Trim(argv[i+1], ",") == "" {
		return nil, lvm.Errorf(lvm.KindInternal, "refusing to run lvm %s: its --devices names no device", argv[0])
	}
	return h.machine.Runner.Run(ctx, argv)
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

// changeState moves a volume to another state, flushes the commit, and returns the volume as the disks now describe it. v must
// have the state that is on the disks, and the caller holds the group's lock.
func (h *Host) changeState(ctx context.Context, s lvm.State, v lvm.Volume, to lvm.VolumeState) (lvm.Volume, error) {
	g, err := s.FindGroup(v.ID.VG)
	if err != nil {
		return lvm.Volume{}, err
	}
	t, err := lvmcmd.TargetOf(g.Name, v.ID.LV)
	if err != nil {
		return lvm.Volume{}, err
	}
	done, err := h.commit(ctx, change{group: g, steps: []lvmcmd.Step{{Argv: lvmcmd.StateArgs(t, g, v.UUID, v.State, to)}}})
	if err != nil {
		return lvm.Volume{}, err
	}
	g, _, now, err := done.state.FindVolume(v.ID)
	switch {
	case err == nil && now.UUID == v.UUID && now.State == to:
		// Committed, whatever the exit status.
	case done.failure != nil:
		return lvm.Volume{}, lvm.Errorf(lvm.KindOf(done.failure), "cannot tag volume %s as %s: %w", t, to, done.failure)
	case err != nil:
		return lvm.Volume{}, lvm.Errorf(lvm.KindInternal, "volume %s disappeared while the driver tagged it as %s: %w", t, to, err)
	default:
		return lvm.Volume{}, lvm.Errorf(lvm.KindInternal, "another program changed volume %s while the driver tagged it as %s: it is %s now", t, to, now.State)
	}
	done.warn(h.log, t.String())
	h.ready.drop(v.ID.VG, v.UUID)
	return now, h.flush(g)
}

// remove removes a volume or snapshot from its group, provided that it has not changed since the driver read it. LVM
// deactivates it, and refuses while its device is open. state is the one on the disks. The caller holds the group's lock.
func (h *Host) remove(ctx context.Context, s lvm.State, id lvm.ID, uuid string, state lvm.VolumeState) error {
	g, err := s.FindGroup(id.VG)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(g.LVs, func(lv lvm.LV) bool { return lv.UUID == uuid }); i >= 0 {
		if g, err = h.flushBefore(ctx, g, g.LVs[i]); err != nil {
			return err
		}
	}
	return h.removeFrom(ctx, g, id, uuid, state)
}

// removeFrom is remove for a thin pool whose pending messages concern no other volume.
func (h *Host) removeFrom(ctx context.Context, g lvm.Group, id lvm.ID, uuid string, state lvm.VolumeState) error {
	t, err := lvmcmd.TargetOf(g.Name, id.LV)
	if err != nil {
		return err
	}
	removed := lvm.LV{Name: id.LV, UUID: uuid}
	var legs []lvm.LV
	if i := slices.IndexFunc(g.LVs, func(lv lvm.LV) bool { return lv.UUID == uuid }); i >= 0 {
		removed = g.LVs[i]
		legs = lvm.ComponentsAndPool(g, removed)[1:]
	}
	now, gone, failure, err := h.commitRemoval(ctx, uuid, change{group: g, legs: legs, steps: []lvmcmd.Step{{Argv: lvmcmd.RemoveArgs(t, g, uuid, state)}}})
	if err == nil && !gone && removed.Pool != "" && state == lvm.StateCreating {
		now, gone, failure, err = h.commitRemoval(ctx, uuid, change{group: now, steps: []lvmcmd.Step{{Argv: lvmcmd.DiscardArgs(t, now, uuid)}}})
	}
	switch {
	case err != nil:
		return err // it may still exist
	case !gone:
		return lvm.Errorf(lvm.KindOf(failure), "cannot remove %s: %w", t, orNoEffect(failure))
	}
	h.ready.drop(id.VG, uuid)
	h.removeNamesOf(g, now, removed)
	return h.flush(now)
}

// commitRemoval is commit for commands that remove a volume. gone reports whether the group lacks it now. On an error it may
// still exist.
func (h *Host) commitRemoval(ctx context.Context, uuid string, c change) (after lvm.Group, gone bool, failure, err error) {
	done, err := h.commit(ctx, c)
	if err != nil {
		return lvm.Group{}, false, done.failure, err
	}
	g, err := done.group()
	if err != nil || slices.ContainsFunc(g.LVs, func(lv lvm.LV) bool { return lv.UUID == uuid }) {
		return g, false, done.failure, err
	}
	if why := g.IncompleteReason(); why != "" {
		return g, false, done.failure, lvm.Errorf(lvm.KindBusy, "cannot determine whether volume group %s still has the volume: %s", g.Name, why)
	}
	return g, true, done.failure, nil
}

// errNoEffect replaces the error of a command that exited with success.
var errNoEffect = errors.New("LVM exited with success but changed nothing; perhaps another program changed it meanwhile")

func orNoEffect(failure error) error {
	if failure == nil {
		return errNoEffect
	}
	return failure
}

// flush makes a commit survive a power cut: LVM writes with O_DIRECT, but does not flush the disks' caches.
func (h *Host) flush(g lvm.Group) error {
	if err := lvm.CheckResponsive(g); err != nil {
		return err
	}
	var paths []string
	for _, pv := range g.PVs {
		if pv.Device != "" {
			paths = append(paths, pv.Device)
		}
	}
	if err := h.machine.Kernel.Sync(paths); err != nil {
		return lvm.Errorf(lvm.KindInternal, "volume group %s was changed, but the driver cannot flush its disks: %w", g.Name, err)
	}
	return nil
}

// eachAtOnce calls do for all groups concurrently.
func eachAtOnce(groups []string, do func(group string) error) error {
	errs := make([]error, len(groups))
	var wait sync.WaitGroup
	for i, group := range groups {
		wait.Go(func() { errs[i] = do(group) })
	}
	wait.Wait()
	return errors.Join(errs...)
}
