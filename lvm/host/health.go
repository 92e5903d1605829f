package host

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// Health finds the conditions of this cluster's volumes and their groups, through the kernel alone, without a process. It
// reports what concerns a whole group once, with the zero Volume. LVM suspends devices for a moment while it works: Health
// reports a device that is still suspended a second later.
func (h *Host) Health(ctx context.Context) ([]lvm.Condition, error) {
	s, err := h.engine.CachedState(ctx)
	if err != nil {
		return nil, err
	}
	return h.health.Findings(ctx, s)
}

// HealthScope reports what Health can check. It starts no process.
func (h *Host) HealthScope(ctx context.Context) (lvm.HealthScope, error) {
	s, err := h.engine.CachedState(ctx)
	if err != nil {
		return lvm.HealthScope{}, err
	}
	return h.health.Scope(s)
}

// Refusal returns why the driver refuses changes to the group of that name now; nil: it does not, or the group does not exist.
// It starts no process.
func (h *Host) Refusal(ctx context.Context, group lvm.VGName) error {
	s, err := h.engine.CachedState(ctx)
	if err != nil {
		return err
	}
	for _, g := range s.Groups {
		if g.Name == group {
			return lvm.CheckWritable(s, g)
		}
	}
	return nil
}

// Inventory reads the disks and the kernel alone: it starts no process while it can read the disks directly.
func (h *Host) Inventory(ctx context.Context) (report.Inventory, error) {
	inv := report.Inventory{Groups: []report.Group{}, Volumes: []report.Volume{}, Snapshots: []report.Snapshot{},
		WipeBacklog: h.wiper.Backlog(), Backlogs: h.wiper.Backlogs(), InFlight: h.operations.Count(), MetadataDifference: h.engine.Disks.Difference()}
	s, err := h.engine.CachedState(ctx)
	if err != nil {
		return inv, err
	}
	inv.Unread, inv.Skipped = s.Unread(), s.Skipped
	inv.Unaccepted = s.Unaccepted
	err = h.health.AddTo(&inv, s, h.pools.ExtensionsOf)
	h.addReasons(&inv)
	return inv, err
}
