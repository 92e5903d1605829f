package host

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm/inventory"
)

// Inventory reads the disks and the kernel alone: it starts no process while it can read the disks directly.
func (h *Host) Inventory(ctx context.Context) (inventory.Inventory, error) {
	inv := inventory.Inventory{Groups: []inventory.Group{}, Volumes: []inventory.Volume{}, Snapshots: []inventory.Snapshot{},
		WipeBacklog: h.wiper.Backlog(), Backlogs: h.wiper.Backlogs(), ReaderOff: h.engine.Disks.Difference()}
	s, err := h.engine.CachedState(ctx)
	if err != nil {
		return inv, err
	}
	inv.Unread, inv.Skipped = s.UnreadDevices, s.Skipped
	inv.Unaccepted = s.Unaccepted
	err = h.health.AddTo(&inv, s)
	h.addReasons(&inv)
	return inv, err
}
