package host

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// activating identifies an Activate request among the operations in flight.
type activating struct {
	id   lvm.ID
	uuid string
}

// Device finds the device of an active volume in sysfs, without LVM. A volume that does not exist is inactive, not an error.
func (h *Host) Device(id lvm.ID, uuid string) (device string, active bool, err error) {
	device, active, err = h.machine.Kernel.Device(lvm.DeviceUUID(id.VG, uuid))
	if err != nil {
		return "", false, lvm.Errorf(lvm.KindOf(err), "cannot determine whether volume %s is active: %w", id, err)
	}
	return device, active, nil
}

// deviceAt returns the volume's device at this path.
func deviceAt(v lvm.Volume, path string) lvm.Device {
	return lvm.Device{UUID: lvm.DeviceUUID(v.ID.VG, v.UUID), Path: path}
}

// Activate returns the device of a volume, "/dev/dm-N", and activates the volume if it has none. That takes one LVM process,
// and one more for a new volume, which must be tagged as ready first; an active volume takes none. uuid is the logical volume's
// UUID from the volume attributes. KindNotFound: the volume does not exist, or another one has its name now; KindNotLocal: its
// volume group is not on this node.
func (h *Host) Activate(ctx context.Context, id lvm.ID, uuid string) (device string, err error) {
	return oplock.Do(ctx, &h.operations, id.LV, activating{id, uuid}, func(ctx context.Context) (string, error) {
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

// notReady is the error for a volume that the driver still creates, or deletes.
func notReady(g lvm.Group, v lvm.Volume) error {
	return g.AbsentError("volume %s is not ready: %s/%s has the state %q", v.ID, v.Group, v.ID.LV, v.State)
}

// device returns the volume's device. It activates the volume, or resumes the device, if necessary.
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
		return "", lvm.Errorf(lvm.KindBusy, "another program changed volume %s meanwhile; retry", v.ID)
	}
	return h.activateLocked(ctx, s, now)
}

// activateLocked does the same under the group's lock. Whether the device exists decides, not LVM's exit status. It resumes a
// suspended device: a killed command left it so.
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

// activatable refuses a volume that may not show its data. If two disks have one PV UUID, either may hold old data.
// --activationmode partial, which LVM suggests for a volume with a missing disk, replaces data with I/O errors.
func activatable(g lvm.Group, lv lvm.LV) error {
	if err := lvm.CheckNoDuplicatePV(g); err != nil {
		return err
	}
	return checkPresent(g, lv, "activated")
}

// runAfterCleanup runs steps that create the devices of these legs, of a RAID volume or of a thin pool. If LVM refuses them, it
// removes the stale devices of the legs and runs the steps again.
func (h *Host) runAfterCleanup(ctx context.Context, g lvm.Group, legs []lvm.LV, steps []lvmcmd.Step) error {
	failure := h.run(ctx, g, steps)
	var refusal *lvm.ExitError
	if errors.As(failure, &refusal) && refusal.Code > 0 && h.removeStaleLegs(g, legs) {
		failure = h.run(ctx, g, steps)
	}
	return failure
}

// removeStaleLegs removes the device-mapper devices of legs unless they are open. A killed activation leaves such devices, and
// LVM refuses to activate the volume while they exist. It reports whether it removed any.
func (h *Host) removeStaleLegs(g lvm.Group, legs []lvm.LV) bool {
	dropped := false
	for _, leg := range legs {
		for _, layer := range []string{"", "-tmeta", "-tdata"} { // the suffixes are those of a thin pool's metadata and data
			removed, err := h.machine.Kernel.Remove(lvm.DeviceUUID(g.UUID, leg.UUID) + layer)
			if err != nil && !errors.Is(err, unix.EBUSY) {
				h.log.Warn("cannot remove the device of a leg that an unfinished activation left", "vg", g.Name, "leg", leg.Name, "error", err)
			}
			dropped = dropped || removed
		}
	}
	return dropped
}

// suspended reports whether the device is suspended, so that I/O to it waits. A device that no longer exists is not.
func (h *Host) suspended(path string) bool {
	is, err := h.machine.Kernel.IsSuspended(path)
	return err == nil && is
}

// resumeDevice resumes a suspended device. The caller holds the group's lock, so that no other command of the driver works on
// the device; LVM's own lock excludes an admin's command.
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
