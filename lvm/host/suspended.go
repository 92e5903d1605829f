package host

import (
	"context"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// resume resumes the suspended devices of the cluster's volumes in a group, with their legs and pools: I/O to them waits. An
// LVM command that was killed between suspend and resume leaves a device suspended.
func (h *Host) resume(ctx context.Context, g lvm.Group) {
	if len(h.suspendedIn(g)) == 0 {
		return
	}
	unlock, err := h.locks.Acquire(ctx, g.UUID, "resuming suspended volumes")
	if err != nil {
		h.log.Error("cannot resume suspended volumes", "vg", g.Name, "error", err)
		return
	}
	defer unlock()
	for _, lv := range h.used(g) {
		if !h.hasSuspendedComponent(g, lv) {
			continue
		}
		if err := h.refresh(ctx, g, lv); err != nil {
			h.log.Error("cannot resume a suspended volume; I/O to it waits", "vg", g.Name, "lv", lv.Name, "error", err)
		} else {
			h.log.Warn("resumed a suspended volume", "vg", g.Name, "lv", lv.Name)
		}
	}
}

// clearInactiveTables clears the inactive tables of thin pools. If an extension was killed before its commit, such a table is
// larger than the device under it, and LVM's next command would fail. A thin volume keeps its inactive table: the kernel counts
// the suspends of a pool by tables, and would never resume the volume (pool_suspend_active_thins in drivers/md/dm-thin.c). An
// admin's command may be about to resume the table that it loaded (without it, writes would bypass a pvmove): LVM's lock keeps the
// driver away from it.
func (h *Host) clearInactiveTables(ctx context.Context, g lvm.Group) {
	waiting, cancel := context.WithTimeout(ctx, oplock.LockPatience)
	defer cancel()
	unlock, err := oplock.LockVG(waiting, h.cfg.LockDir, g.Name)
	if err != nil {
		h.log.Warn("not checking for inactive tables that an interrupted command left", "vg", g.Name, "error", err)
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
					h.log.Warn("cannot clear an inactive table that an interrupted command left", "vg", g.Name, "lv", part.Name, "error", err)
				} else if was {
					h.log.Warn("cleared an inactive table that an interrupted command left", "vg", g.Name, "lv", part.Name)
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

// used lists what this cluster uses in a group: first thin pools, an admin's too, because lvchange --refresh of a thin volume
// blocks while its pool is suspended; then volumes and snapshots.
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

// hasSuspendedComponent reports whether a device of an LV is suspended, including its legs and a pool's data and metadata, but
// not the pool of a thin volume.
func (h *Host) hasSuspendedComponent(g lvm.Group, lv lvm.LV) bool {
	suspended := h.suspendedIn(g)
	return len(suspended) > 0 && slices.ContainsFunc(lvm.Components(g, lv), func(part lvm.LV) bool { return suspended[lvm.DeviceUUID(g.UUID, part.UUID)] })
}

// suspendedIn returns the suspended devices of a group, hidden layers included, by the device-mapper UUID of their LV.
func (h *Host) suspendedIn(g lvm.Group) map[string]bool {
	devices, err := h.devices()
	if err != nil {
		h.log.Warn("cannot determine which devices are suspended", "error", err)
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
