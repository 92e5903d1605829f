package engine

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

// FindDevice finds the device of an active volume in sysfs, without LVM. A volume that does not exist is inactive, not an error.
func (e *Engine) FindDevice(ctx context.Context, id lvm.ID, uuid string) (device string, active bool, err error) {
	device, active, err = e.Machine.Kernel.Device(lvm.DeviceUUID(id.VG, uuid))
	if err != nil {
		return "", false, lvm.Errorf(lvm.KindOf(err), "cannot determine whether volume %s is active: %w", id, err)
	}
	if active {
		if err := e.checkPVs(ctx, id.VG, device); err != nil {
			return "", false, err
		}
	}
	return device, active, nil
}

// DeviceAt returns the volume's device at this path.
func DeviceAt(v lvm.Volume, path string) lvm.Device {
	return lvm.Device{UUID: lvm.DeviceUUID(v.ID.VG, v.UUID), Path: path}
}

// NotReady is the error for a volume that the driver still creates, or deletes.
func NotReady(g lvm.Group, v lvm.Volume) error {
	if err := v.CheckNoMove("used"); err != nil {
		return err
	}
	return g.AbsentError("volume %s is not ready: %s/%s has the state %q", v.ID, v.Group, v.ID.LV, v.State)
}

// EnsureActive returns the volume's device. If necessary, it activates the volume, resumes the device, or makes it map a disk again
// that was removed and is back.
func (e *Engine) EnsureActive(ctx context.Context, v lvm.Volume) (string, error) {
	path, active, err := e.FindDevice(ctx, v.ID, v.UUID)
	if err != nil {
		return "", err
	}
	if active && !e.suspended(path) && !e.mapsRemovedDisk(path) {
		return path, nil
	}
	s, unlock, err := e.LockedFirst(ctx, v.ID.VG, "activating volume "+v.ID.LV, owedByActivation, e.ReadState)
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
	return e.activateLocked(ctx, s, now)
}

// activateLocked does the same under the group's lock. Whether the device exists decides, not LVM's exit status. It resumes a
// suspended device: a killed command left it so.
func (e *Engine) activateLocked(ctx context.Context, s lvm.State, v lvm.Volume) (string, error) {
	g, lv, _, err := s.FindVolume(v.ID)
	if err != nil {
		return "", err
	}
	t, err := lvmcmd.TargetOf(g.Name, v.ID.LV)
	if err != nil {
		return "", err
	}
	path, active, err := e.FindDevice(ctx, v.ID, v.UUID)
	if err != nil {
		return "", err
	}
	if active {
		if err := e.ResumeDevice(ctx, g, v.ID.LV, path); err != nil {
			return "", err
		}
		return e.mapPresentDisks(ctx, g, lv, v, path)
	}
	if err := activatable(g, lv); err != nil {
		return "", err
	}
	failure := e.Run(ctx, g, []lvmcmd.Step{{Argv: lvmcmd.ActivateArgs(t, g)}})
	path, active, err = e.FindDevice(ctx, v.ID, v.UUID)
	if err == nil && !active && e.removeStaleLegs(g, lvm.ComponentsAndPool(g, lv)[1:]) {
		failure = e.Run(ctx, g, []lvmcmd.Step{{Argv: lvmcmd.ActivateArgs(t, g)}})
		path, active, err = e.FindDevice(ctx, v.ID, v.UUID)
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
	return CheckPresent(g, lv, "activated")
}

// CheckPresent refuses a volume with a part on a missing or unresponsive disk. done completes the message "cannot be ...".
func CheckPresent(g lvm.Group, lv lvm.LV, done string) error {
	away := map[string]bool{}
	var sentence string
	for _, pv := range g.PVs {
		switch {
		case pv.Missing:
			sentence = pv.DescribeMissing(g.Name)
		case pv.Unresponsive:
			sentence = lvm.DescribeUnresponsive(pv.Device)
		default:
			continue
		}
		away[pv.UUID] = true
	}
	if len(away) > 0 && g.DamageOf(lv, away, 0).Lost {
		return lvm.Errorf(lvm.KindBusy, "volume %s/%s cannot be %s while a part of it is missing; retry: %s", g.Name, lv.Name, done, sentence)
	}
	return nil
}

// Devices lists the node's device-mapper devices that belong to LVM.
func (e *Engine) Devices() ([]lvm.Device, error) {
	devices, err := e.Machine.Kernel.Devices()
	if err != nil {
		return nil, lvm.Errorf(lvm.KindInternal, "cannot list the device-mapper devices of this node: %w", err)
	}
	return devices, nil
}
