package host

import (
	"context"
	"fmt"
	"slices"

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
	inv.Unread, inv.Skipped = slices.Clone(s.UnreadDevices), s.Skipped
	for _, g := range s.Groups {
		if g.Unreadable != "" { // the inventory lacks its volumes, which are no more absent than those on an unreadable disk
			inv.Unread = append(inv.Unread, fmt.Sprintf("the metadata of volume group %s cannot be read: %s", g.Name, g.Unreadable))
		}
	}
	inv.Unaccepted = s.Unaccepted
	err = h.health.AddTo(&inv, s, h.pools.ExtensionsOf)
	h.addReasons(&inv)
	return inv, err
}
