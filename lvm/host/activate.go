package host

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

// activating is an Activate request, as flights compare it.
type activating struct {
	id   lvm.ID
	uuid string
}

// Device finds the device of a volume that is active, without LVM: a volume that is not there is not an error, only
// inactive. The names below /dev/mapper and /dev/GROUP are never trusted; they can be stale.
func (h *Host) Device(id lvm.ID, uuid string) (device string, active bool, err error) {
	device, active, err = h.machine.Kernel.Device(lvm.DeviceUUID(id.VG, uuid))
	if err != nil {
		return "", false, lvm.Errorf(lvm.KindOf(err), "cannot determine whether volume %s is active: %w", id, err)
	}
	return device, active, nil
}

// deviceAt is the volume's device at the path where it was found.
func deviceAt(v lvm.Volume, path string) lvm.Device {
	return lvm.Device{UUID: lvm.DeviceUUID(v.ID.VG, v.UUID), Path: path}
}

// Activate returns the device of a volume, "/dev/dm-N", after making it if it is not there: one LVM process then, else
// none, and one more for a volume made a moment ago, which is marked as ready before it is handed out. uuid is the
// logical volume's own, from the volume attributes. KindNotFound: there is no such volume, or another one has its name
// now; KindNotLocal: its group is not on this node.
func (h *Host) Activate(ctx context.Context, id lvm.ID, uuid string) (device string, err error) {
	return do(ctx, &h.operations, id.LV, activating{id, uuid}, func(ctx context.Context) (string, error) {
		return h.activate(ctx, id, uuid)
	})
}

func (h *Host) activate(ctx context.Context, id lvm.ID, uuid string) (string, error) {
	s, err := h.readState(ctx)
	if err != nil {
		return "", err
	}
	g, _, v, err := s.FindVolume(id)
	switch {
	case err != nil:
		return "", err
	case v.UUID != uuid:
		return "", g.AbsentError("volume %s was removed and %s/%s created again (UUID %s instead of %s)", id, v.Group, id.LV, v.UUID, uuid)
	case v.State != lvm.StateReady:
		return "", notReady(g, v)
	}
	if h.ready.has(id.VG, uuid) {
		if err := h.markReadyFor(ctx, id.VG, uuid); err != nil {
			return "", err
		}
	}
	return h.device(ctx, v)
}

// notReady is the answer to those who want a volume that is being made or deleted.
func notReady(g lvm.Group, v lvm.Volume) error {
	return g.AbsentError("volume %s is not ready: %s/%s has the state %q", v.ID, v.Group, v.ID.LV, v.State)
}

// device returns the volume's device, and activates it if need be.
func (h *Host) device(ctx context.Context, v lvm.Volume) (string, error) {
	path, active, err := h.Device(v.ID, v.UUID)
	if err != nil {
		return "", err
	}
	if active && !h.suspended(path) {
		return path, nil
	}
	s, unlock, err := h.lockedFirst(ctx, v.ID.VG, "activating volume "+v.ID.LV, owedByActivation, h.readState)
	if err != nil {
		return "", err
	}
	defer unlock()
	_, _, now, err := s.FindVolume(v.ID)
	if err != nil {
		return "", err
	}
	if now.UUID != v.UUID || now.State != v.State {
		return "", lvm.Errorf(lvm.KindBusy, "volume %s was changed meanwhile; retry", v.ID)
	}
	return h.activateLocked(ctx, s, now)
}

// activateLocked is device under the group's lock. LVM's exit status is not asked: the device is there or it is not. One
// that is suspended is refreshed: a command that was killed left it so.
func (h *Host) activateLocked(ctx context.Context, s lvm.State, v lvm.Volume) (string, error) {
	g, lv, _, err := s.FindVolume(v.ID)
	if err != nil {
		return "", err
	}
	t, err := lvmcmd.TargetOf(g.Name, v.ID.LV)
	if err != nil {
		return "", err
	}
	path, active, err := h.Device(v.ID, v.UUID)
	if err != nil {
		return "", err
	}
	if active {
		return path, h.resumeDevice(ctx, g, v.ID.LV, path)
	}
	if err := activatable(g, lv); err != nil {
		return "", err
	}
	failure := h.run(ctx, g, []lvmcmd.Step{{Argv: lvmcmd.ActivateArgs(t, g)}})
	path, active, err = h.Device(v.ID, v.UUID)
	if err == nil && !active && h.removeStaleLegs(g, lvm.ComponentsAndPool(g, lv)[1:]) {
		failure = h.run(ctx, g, []lvmcmd.Step{{Argv: lvmcmd.ActivateArgs(t, g)}})
		path, active, err = h.Device(v.ID, v.UUID)
	}
	if err == nil && !active {
		if failure == nil {
			return "", lvm.Errorf(lvm.KindInternal, "LVM activated volume %s, but device-mapper has no device for it", t)
		}
		return "", lvm.Errorf(lvm.KindOf(failure), "cannot activate volume %s: %w", t, failure)
	}
	return path, err
}

// activatable refuses a volume that would not show what it holds: of a disk with a copy, either may be the old one, and what
// LVM advises for a volume that lacks a disk (--activationmode partial) puts errors in the place of data.
func activatable(g lvm.Group, lv lvm.LV) error {
	if err := lvm.CheckNoDuplicatePV(g); err != nil {
		return err
	}
	return checkPresent(g, lv, "activated")
}

// runAfterCleanup is run for a command that has to make the devices of these legs, of a RAID or of a thin pool: if LVM refuses it,
// what an earlier one left of them is taken out of its way.
func (h *Host) runAfterCleanup(ctx context.Context, g lvm.Group, legs []lvm.LV, steps []lvmcmd.Step) error {
	failure := h.run(ctx, g, steps)
	var refusal *lvm.ExitError
	if errors.As(failure, &refusal) && refusal.Code > 0 && h.removeStaleLegs(g, legs) {
		failure = h.run(ctx, g, steps)
	}
	return failure
}

// removeStaleLegs takes the devices of legs out of the kernel, as far as nothing stands on them: an activation that was
// killed leaves them behind, and LVM refuses another one while they are there. It tells whether there were any.
func (h *Host) removeStaleLegs(g lvm.Group, legs []lvm.LV) bool {
	dropped := false
	for _, leg := range legs {
		for _, layer := range []string{"", "-tmeta", "-tdata"} { // the latter as parts of a thin pool
			removed, err := h.machine.Kernel.Remove(lvm.DeviceUUID(g.UUID, leg.UUID) + layer)
			if err != nil && !errors.Is(err, unix.EBUSY) {
				h.log.Warn("a leg that an unfinished activation left cannot be taken back", "vg", g.Name, "leg", leg.Name, "error", err)
			}
			dropped = dropped || removed
		}
	}
	return dropped
}

// suspended tells whether whoever touches the device hangs. A device that has just gone away is not.
func (h *Host) suspended(path string) bool {
	is, err := h.machine.Kernel.IsSuspended(path)
	return err == nil && is
}

// resumeDevice resumes a device that is suspended. The group's lock must be held: none of our own commands is at work on it, and
// an admin's is waited for by LVM's lock.
func (h *Host) resumeDevice(ctx context.Context, g lvm.Group, lv, path string) error {
	if !h.suspended(path) {
		return nil
	}
	t, err := lvmcmd.TargetOf(g.Name, lv)
	if err != nil {
		return err
	}
	failure := h.run(ctx, g, []lvmcmd.Step{{Argv: lvmcmd.RefreshArgs(t, g)}})
	if h.suspended(path) {
		return lvm.Errorf(lvm.KindInternal, "cannot resume volume %s, which is suspended; I/O to it waits: %w", t, orNoEffect(failure))
	}
	h.log.Warn("resumed a suspended volume", "volume", t.String())
	return nil
}
