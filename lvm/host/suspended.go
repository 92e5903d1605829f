package host

import (
	"context"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

// resume refreshes what is suspended of our volumes in a group, their legs and pools included: whoever touches such
// a device hangs. An LVM command that was killed between suspending and resuming leaves it so.
func (h *Host) resume(ctx context.Context, g lvm.Group) {
	if len(h.suspendedIn(g)) == 0 {
		return
	}
	unlock, err := h.lockGroup(ctx, g.UUID, "resuming suspended volumes")
	if err != nil {
		h.log.Error("suspended volumes could not be resumed", "vg", g.Name, "error", err)
		return
	}
	defer unlock()
	for _, lv := range h.used(g) {
		if !h.hasSuspendedComponent(g, lv) {
			continue
		}
		if err := h.refresh(ctx, g, lv); err != nil {
			h.log.Error("a suspended volume could not be resumed: what uses it hangs", "vg", g.Name, "lv", lv.Name, "error", err)
		} else {
			h.log.Warn("resumed a suspended volume", "vg", g.Name, "lv", lv.Name)
		}
	}
}

// clearInactiveTables drops what was loaded for thin pools and never taken into use: where the growth of one was killed before its
// commit, that is a larger table than what is below can hold, and LVM's next command would fail on it. A thin volume keeps
// what was loaded for it: the kernel counts a suspended pool's halts by tables, and would never let the volume go again
// (pool_suspend_active_thins in drivers/md/dm-thin.c). What an admin's command has loaded it is about to take into use (a
// pvmove would copy what is written past it): LVM's lock keeps us from that.
func (h *Host) clearInactiveTables(ctx context.Context, g lvm.Group) {
	waiting, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	unlock, err := lockVG(waiting, h.cfg.LockDir, g.Name)
	if err != nil {
		h.log.Warn("whether an unfinished command has left tables is not looked at", "vg", g.Name, "error", err)
		return
	}
	defer unlock()
	for _, pool := range h.used(g) {
		if pool.Thin == nil {
			continue
		}
		for _, part := range lvm.Components(g, pool) {
			for _, layer := range []string{"", "-tmeta", "-tdata", "-tpool", "-pool"} {
				was, err := h.machine.Kernel.ClearInactiveTable(lvm.DeviceUUID(g.UUID, part.UUID) + layer)
				if err != nil {
					h.log.Warn("a table that an unfinished command has loaded cannot be dropped", "vg", g.Name, "lv", part.Name, "error", err)
				} else if was {
					h.log.Warn("a table that an unfinished command has loaded was dropped", "vg", g.Name, "lv", part.Name)
				}
			}
		}
	}
}

func (h *Host) refresh(ctx context.Context, g lvm.Group, lv lvm.LV) error {
	t, err := lvmcmd.TargetOf(g.Name, lv.Name)
	if err != nil {
		return err
	}
	return h.run(ctx, g, []lvmcmd.Step{{Argv: lvmcmd.RefreshArgs(t, g)}})
}

// used lists what this cluster uses in a group: first thin pools, an admin's too, since the refresh of a thin volume
// hangs while its pool is suspended; then volumes and snapshots.
func (h *Host) used(g lvm.Group) []lvm.LV {
	var pools, volumes []lvm.LV
	for _, lv := range g.LVs {
		if values, _ := lvm.DecodeTags(lv.Tags); lv.Hidden || values[lvm.KeyVersion] == "" || values[lvm.KeyCluster] != h.cfg.Cluster {
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

// hasSuspendedComponent tells whether an LV's device, or that of a part of it, is suspended: legs, a pool's data and metadata;
// not the pool of a thin volume.
func (h *Host) hasSuspendedComponent(g lvm.Group, lv lvm.LV) bool {
	suspended := h.suspendedIn(g)
	return len(suspended) > 0 && slices.ContainsFunc(lvm.Components(g, lv), func(part lvm.LV) bool { return suspended[lvm.DeviceUUID(g.UUID, part.UUID)] })
}

// suspendedIn finds the suspended devices of a group, hidden layers included, by the device-mapper UUID of their LV.
func (h *Host) suspendedIn(g lvm.Group) map[string]bool {
	devices, err := h.devices()
	if err != nil {
		h.log.Warn("whether a device is suspended cannot be told", "error", err)
		return nil
	}
	return h.suspendedOf(g, devices)
}

func (h *Host) suspendedOf(g lvm.Group, devices []lvm.Device) map[string]bool {
	group := lvm.DeviceUUID(g.UUID, "")
	var suspended map[string]bool
	for _, d := range devices {
		size := len(group) + 32
		if len(d.UUID) < size || d.UUID[:len(group)] != group || !h.suspended(d.Path) {
			continue
		}
		if suspended == nil {
			suspended = map[string]bool{}
		}
		suspended[d.UUID[:size]] = true // without the suffix of a hidden layer
	}
	return suspended
}
