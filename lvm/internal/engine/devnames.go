package engine

import (
	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
)

// RemoveNamesOf removes the names in the host's /dev that an admin's lvm left for a volume that the driver has just removed,
// and for its hidden LVs, which before lists. Without udev lvm creates such a name with the device, and only lvm would remove
// it. The caller holds the group's lock, so that the driver creates no volume of that name. after is the group's current state.
func (e *Engine) RemoveNamesOf(before, after lvm.Group, lv lvm.LV) {
	var hidden []string
	for _, part := range lvm.Components(before, lv) {
		if part.Thin != nil {
			hidden = append(hidden, dm.MapperName(before.Name, part.Name)+"-tpool")
		}
		if part.UUID != lv.UUID && after.FindLV(part.Name) == nil {
			hidden = append(hidden, dm.MapperName(before.Name, part.Name))
		}
	}
	removed, err := e.Machine.Kernel.RemoveNamesOf(before.Name, lv.Name, hidden)
	if err != nil {
		e.Log.Warn("cannot remove all names in /dev of a removed volume", "vg", before.Name, "lv", lv.Name, "error", err)
	}
	if len(removed) > 0 {
		e.Log.Info("removed names in /dev that an lvm command left for a removed volume", "vg", before.Name, "lv", lv.Name, "names", removed)
	}
}
