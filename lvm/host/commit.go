package host

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

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
	failure := h.run(ctx, g, []lvmcmd.Step{{Argv: lvmcmd.StateArgs(t, g, v.UUID, v.State, to)}})
	s, err = h.readDisks(ctx)
	if err != nil {
		return lvm.Volume{}, err
	}
	g, _, now, err := s.FindVolume(v.ID)
	switch {
	case err == nil && now.UUID == v.UUID && now.State == to:
		// Committed, whatever the exit status.
	case failure != nil:
		return lvm.Volume{}, lvm.Errorf(lvm.KindOf(failure), "cannot tag volume %s as %s: %w", t, to, failure)
	case err != nil:
		return lvm.Volume{}, lvm.Errorf(lvm.KindInternal, "volume %s disappeared while the driver tagged it as %s: %w", t, to, err)
	default:
		return lvm.Volume{}, lvm.Errorf(lvm.KindInternal, "another program changed volume %s while the driver tagged it as %s: it is %s now", t, to, now.State)
	}
	if failure != nil {
		h.log.Warn("LVM exited with an error but committed the change", "volume", t.String(), "error", failure)
	}
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
	failure := h.runAfterCleanup(ctx, g, legs, []lvmcmd.Step{{Argv: lvmcmd.RemoveArgs(t, g, uuid, state)}})
	now, gone, err := h.isGone(ctx, id.VG, uuid)
	if err == nil && !gone && removed.Pool != "" && state == lvm.StateCreating {
		failure = h.run(ctx, now, []lvmcmd.Step{{Argv: lvmcmd.DiscardArgs(t, now, uuid)}})
		now, gone, err = h.isGone(ctx, id.VG, uuid)
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

// isGone reads the disks and reports whether a group lacks a volume.
func (h *Host) isGone(ctx context.Context, group, uuid string) (lvm.Group, bool, error) {
	s, err := h.readDisks(ctx)
	if err != nil {
		return lvm.Group{}, false, err
	}
	g, err := s.FindGroup(group)
	if err != nil || slices.ContainsFunc(g.LVs, func(lv lvm.LV) bool { return lv.UUID == uuid }) {
		return g, false, err
	}
	if why := g.IncompleteReason(); why != "" {
		return g, false, lvm.Errorf(lvm.KindBusy, "cannot determine whether volume group %s still has the volume: %s", g.Name, why)
	}
	return g, true, nil
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
