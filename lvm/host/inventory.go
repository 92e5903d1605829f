package host

import (
	"context"

	"github.com/nodelvm/nodelvm/report"
)

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
