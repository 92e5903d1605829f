package engine

import (
	"context"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

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
	return e.SuspendedOf(g, devices)
}

func (e *Engine) SuspendedOf(g lvm.Group, devices []lvm.Device) map[string]bool {
	group := lvm.DeviceUUID(g.UUID, "")
	var suspended map[string]bool
	for _, d := range devices {
		size := len(group) + 32
		if len(d.UUID) < size || d.UUID[:len(group)] != group || !e.suspended(d.Path) {
			continue
		}
		if suspended == nil {
			suspended = map[string]bool{}
		}
		suspended[d.UUID[:size]] = true // without the suffix of a hidden layer
	}
	return suspended
}
