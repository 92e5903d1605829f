package engine

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
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

// FindDevices is FindDevice for many volumes, from one reading of the devices that may be as old as Config.CacheTTL. Volumes that are not
// active, or whose device is refused, are absent.
func (e *Engine) FindDevices(ctx context.Context, volumes []lvm.Volume) (map[lvm.ID]lvm.Device, error) {
	mapped, err := e.CachedDevices()
	if err != nil {
		return nil, err
	}
	listed := make(map[string]lvm.Device, len(mapped.Devices))
	for _, d := range mapped.Devices {
		listed[d.UUID] = d
	}
	found := make(map[lvm.ID]lvm.Device, len(volumes))
	for _, v := range volumes {
		d, active := listed[lvm.DeviceUUID(v.ID.VG, v.UUID)]
		if !active {
			continue
		}
		disks, certain := mapped.Disks[d.Path]
		if !certain || len(e.LastRead.without(v.ID.VG, disks)) > 0 {
			now := lvm.Device{UUID: d.UUID}
			if now.Path, active, err = e.FindDevice(ctx, v.ID, v.UUID); err != nil || !active {
				continue
			}
			d = now
		}
		found[v.ID] = d
	}
	return found, nil
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

// FindReady finds a ready volume with this UUID. KindNotFound, KindBusy: the group has no such volume, or it is not ready; else as
// State.FindVolume.
func FindReady(s lvm.State, id lvm.ID, uuid string) (g lvm.Group, lv lvm.LV, v lvm.Volume, err error) {
	if g, lv, v, err = s.FindVolume(id); err == nil {
		err = CheckUUID(g, v, uuid)
	}
	if err == nil && v.State != lvm.StateReady {
		err = NotReady(g, v)
	}
	return g, lv, v, err
}

// CheckUUID refuses a volume that has the name of the one with this UUID. KindNotFound, KindBusy: as AbsentError.
func CheckUUID(g lvm.Group, v lvm.Volume, uuid string) error {
	if v.UUID == uuid {
		return nil
	}
	return g.AbsentError("volume %s was removed and %s/%s created again (UUID %s instead of %s)", v.ID, v.Group, v.ID.LV, v.UUID, uuid)
}

// EnsureActive returns the device of a volume of a group. If necessary, it activates the volume, resumes the device, makes it map a disk again
// that was removed and is back, or activates its failed thin pool again.
func (e *Engine) EnsureActive(ctx context.Context, g lvm.Group, lv lvm.LV, v lvm.Volume) (string, error) {
	path, active, err := e.FindDevice(ctx, v.ID, v.UUID)
	if err != nil {
		return "", err
	}
	if active && !e.suspended(path) && !e.mapsRemovedDisk(path) && (lv.Pool == "" || e.failedPool(g, lv, v) == nil) {
		return path, nil
	}
	s, unlock, err := e.lockedFirst(ctx, v.ID.VG, "activating volume "+v.ID.LV, owedByActivation, e.ReadVolumes)
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
	if lv.Pool != "" {
		e.reactivateFailedPool(ctx, g, lv, v)
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
	failure := e.Run(ctx, g, []lvmcmd.Step{{Argv: lvmcmd.ActivateArgs(g, t)}})
	path, active, err = e.FindDevice(ctx, v.ID, v.UUID)
	if err == nil && !active && e.removeStaleLegs(g, lvm.ComponentsAndPool(g, lv)[1:]) {
		failure = e.Run(ctx, g, []lvmcmd.Step{{Argv: lvmcmd.ActivateArgs(g, t)}})
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

// checkPVs refuses (KindConflict) a device that has a volume's UUID, and is not on physical volumes of the volume's group. The user of
// another storage driver's raw volume can write a group with a volume's UUIDs to it, and a node whose own LVM activates that gives them
// to the kernel. This check needs no process, and reads the disks only if the last reading does not confirm the device.
func (e *Engine) checkPVs(ctx context.Context, group lvm.VGUUID, device string) error {
	below, _, err := e.Machine.Kernel.DisksBelow(device)
	if err != nil {
		return lvm.Errorf(lvm.KindConflict, "device %s has this volume's UUID, but the driver cannot confirm that it is the volume: %w", device, err)
	}
	if e.Machine.Reader == nil || len(e.LastRead.without(group, below)) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkPVsPatience)
	defer cancel()
	if _, err := e.ReadDisks(ctx); err != nil {
		return lvm.Errorf(lvm.KindBusy, "cannot confirm that device %s is the volume: %w", device, err)
	}
	if foreign := e.LastRead.without(group, below); len(foreign) > 0 {
		return lvm.Errorf(lvm.KindConflict, "device %s has this volume's UUID, but the driver cannot confirm that it is the volume: it is on %s, where the driver finds no physical volume of volume group %s. If that disk fails, replace it; if it is another group's, find what activated the device (dmsetup ls --tree), and deactivate it there",
			device, strings.Join(foreign, ", "), group)
	}
	return nil
}

// checkPVsPatience is longer than a reading waits for a disk that never answered.
const checkPVsPatience = 15 * time.Second

// writeFormatMark writes the format mark of a volume that is not ready yet, if its tag says that it has one. The caller holds the
// group's lock, and tags the volume as ready after that: no pod has used it.
func (e *Engine) writeFormatMark(ctx context.Context, g lvm.Group, v lvm.Volume) error {
	if v.FormatMark == 0 {
		return nil
	}
	path, err := e.activateLocked(ctx, lvm.State{Groups: []lvm.Group{g}}, v)
	if err != nil {
		return err
	}
	if err := e.Machine.Kernel.Write(DeviceAt(v, path), lvm.FormatMark(v.UUID), v.FormatMark); err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot write the format mark of volume %s/%s, without which the driver would never format it: %w", g.Name, v.ID.LV, err)
	}
	return nil
}

// suspended reports whether the device is suspended, so that I/O to it waits. A device that no longer exists is not.
func (e *Engine) suspended(path string) bool {
	is, err := e.Machine.Kernel.IsSuspended(path)
	return err == nil && is
}

// ResumeDevice resumes a suspended device. The caller holds the group's lock, so that no other command of the driver works on
// the device; LVM's own lock excludes an admin's command.
func (e *Engine) ResumeDevice(ctx context.Context, g lvm.Group, lv, path string) error {
	if !e.suspended(path) {
		return nil
	}
	t, err := lvmcmd.TargetOf(g.Name, lv)
	if err != nil {
		return err
	}
	failure := e.Run(ctx, g, []lvmcmd.Step{{Argv: lvmcmd.RefreshArgs(t, g)}})
	if e.suspended(path) {
		return lvm.Errorf(lvm.KindInternal, "cannot resume volume %s, which is suspended; I/O to it waits: %w", t, OrNoEffect(failure))
	}
	e.Log.Warn("resumed a suspended volume", "volume", t.String())
	return nil
}

// ResumeVolume resumes the volume's device, if it is active and suspended. The group's lock must be held.
func (e *Engine) ResumeVolume(ctx context.Context, g lvm.Group, v lvm.Volume) error {
	path, active, err := e.FindDevice(ctx, v.ID, v.UUID)
	if err != nil || !active {
		return err
	}
	return e.ResumeDevice(ctx, g, v.ID.LV, path)
}

// Refresh resumes the devices of a logical volume.
func (e *Engine) Refresh(ctx context.Context, g lvm.Group, lv lvm.LV) error {
	t, err := lvmcmd.TargetOf(g.Name, lv.Name)
	if err != nil {
		return err
	}
	return e.Run(ctx, g, []lvmcmd.Step{{Argv: lvmcmd.RefreshArgs(t, g)}})
}

// InUse lists what a cluster uses in a group: first thin pools, an admin's too, because lvchange --refresh of a thin volume
// blocks while its pool is suspended; then volumes and snapshots.
func (e *Engine) InUse(g lvm.Group, cluster string) []lvm.LV {
	var pools, volumes []lvm.LV
	for _, lv := range g.LVs {
		if lv.Hidden || lv.Managed == nil || lv.Managed.Cluster != cluster {
			continue
		}
		volumes = append(volumes, lv)
		for _, pool := range g.LVs {
			if pool.Name == lv.Pool && !slices.ContainsFunc(pools, func(p lvm.LV) bool { return p.Name == pool.Name }) {
				pools = append(pools, pool)
			}
		}
	}
	return append(pools, volumes...)
}

// HasSuspendedComponent reports whether a device of an LV is suspended, including its legs and a pool's data and metadata, but
// not the pool of a thin volume.
func (e *Engine) HasSuspendedComponent(g lvm.Group, lv lvm.LV) bool {
	suspended := e.SuspendedIn(g)
	return len(suspended) > 0 && slices.ContainsFunc(lvm.Components(g, lv), func(part lvm.LV) bool { return suspended[lvm.DeviceUUID(g.UUID, part.UUID)] })
}

// SuspendedIn returns the suspended devices of a group, hidden layers included, by the device-mapper UUID of their LV.
func (e *Engine) SuspendedIn(g lvm.Group) map[string]bool {
	devices, err := e.Devices()
	if err != nil {
		e.Log.Warn("cannot determine which devices are suspended", "error", err)
		return nil
	}
	return SuspendedOf(g, devices)
}

// SuspendedOf is SuspendedIn for a list of devices.
func SuspendedOf(g lvm.Group, devices []lvm.Device) map[string]bool {
	group := lvm.DeviceUUID(g.UUID, "")
	size := len(group) + 32
	suspended := map[string]bool{}
	for _, d := range devices {
		if d.Suspended && len(d.UUID) >= size && d.UUID[:len(group)] == group {
			suspended[d.UUID[:size]] = true // without the suffix of a hidden layer
		}
	}
	return suspended
}

// CheckNoDependents refuses a volume on which others depend: lvremove removes the snapshots of an origin without a warning. done completes the
// message "cannot be ...".
func CheckNoDependents(g lvm.Group, lv lvm.LV, done string) error {
	if len(lv.UsedBy) == 0 {
		return nil
	}
	return lvm.Errorf(lvm.KindInUse, "volume %s/%s cannot be %s while %s depends on it: remove that first", g.Name, lv.Name, done, strings.Join(lv.UsedBy, ", "))
}

// CheckUnused refuses a volume in use, before anything changes: lvchange can fail and yet commit a tag. done is as in CheckNoDependents.
func (e *Engine) CheckUnused(ctx context.Context, g lvm.Group, lv lvm.LV, v lvm.Volume, done string) error {
	if err := CheckNoDependents(g, lv, done); err != nil {
		return err
	}
	if alloc.IsMoving(g, lv) {
		return lvm.Errorf(lvm.KindBusy, "volume %s/%s cannot be %s: %w", v.Group, lv.Name, done, alloc.ErrMoving)
	}
	path, active, err := e.FindDevice(ctx, v.ID, v.UUID)
	if err != nil || !active {
		return err
	}
	if err := e.Machine.Kernel.CheckUnused(ctx, path); err != nil {
		return lvm.Errorf(lvm.KindOf(err), "volume %s/%s cannot be %s: %w", v.Group, lv.Name, done, err)
	}
	return nil
}

// mapsRemovedDisk reports whether the volume's device maps a disk that was removed.
func (e *Engine) mapsRemovedDisk(path string) bool {
	_, removed, err := e.Machine.Kernel.DisksBelow(path)
	return err == nil && len(removed) > 0
}
