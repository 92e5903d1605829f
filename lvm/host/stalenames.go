package host

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// removeStaleNames removes the names of a group in the host's /dev that earlier versions of the driver created: after an
// admin's lvremove such a name leads to the volume that gets the device's number next.
func (h *Host) removeStaleNames(ctx context.Context, group string, ours func(uuid string) bool) {
	waiting, cancel := context.WithTimeout(ctx, oplock.LockPatience)
	defer cancel()
	unlock, err := oplock.LockVG(waiting, h.cfg.LockDir, group) // an admin's lvm may be creating a device
	if err != nil {
		h.log.Warn("not checking for names in /dev that an earlier version left", "vg", group, "error", err)
		return
	}
	defer unlock()
	removed, err := h.machine.Kernel.RemoveStaleNames(group, ours)
	if err != nil {
		h.log.Warn("cannot check all names in /dev that an earlier version left", "vg", group, "error", err)
	}
	if len(removed) > 0 {
		h.log.Warn("removed names in /dev that an earlier version left; devices and volumes are unchanged", "vg", group, "names", removed)
	}
}

// removeNamesOf removes the names in the host's /dev that an admin's lvm left for a volume that the driver has just removed,
// and for its hidden LVs, which before lists. Without udev lvm creates such a name with the device, and only lvm would remove
// it. The caller holds the group's lock, so that the driver creates no volume of that name. after is the group's current state.
func (h *Host) removeNamesOf(before, after lvm.Group, lv lvm.LV) {
	var hidden []string
	for _, part := range lvm.Components(before, lv) {
		if part.Thin != nil {
			hidden = append(hidden, dm.MapperName(before.Name, part.Name)+"-tpool")
		}
		if part.UUID != lv.UUID && after.FindLV(part.Name) == nil {
			hidden = append(hidden, dm.MapperName(before.Name, part.Name))
		}
	}
	removed, err := h.machine.Kernel.RemoveNamesOf(before.Name, lv.Name, hidden)
	if err != nil {
		h.log.Warn("cannot remove all names in /dev of a removed volume", "vg", before.Name, "lv", lv.Name, "error", err)
	}
	if len(removed) > 0 {
		h.log.Info("removed names in /dev that an lvm command left for a removed volume", "vg", before.Name, "lv", lv.Name, "names", removed)
	}
}

// isUsed returns a function that reports whether a device's UUID belongs to a volume that this cluster uses, or to a part or
// layer of one.
func (h *Host) isUsed(g lvm.Group) func(uuid string) bool {
	used := map[string]bool{}
	for _, lv := range h.used(g) {
		for _, part := range lvm.Components(g, lv) {
			used[lvm.DeviceUUID(g.UUID, part.UUID)] = true
		}
	}
	return func(uuid string) bool { return used[uuid[:min(len(uuid), dmUUIDLength)]] }
}

// dmUUIDLength is the length of "LVM-" with the UUIDs of a group and a volume; a layer's suffix follows.
const dmUUIDLength = 4 + 32 + 32

// removeNamesOfFormerGroups is removeStaleNames for groups that an admin renamed or removed since the driver backed them up.
func (h *Host) removeNamesOfFormerGroups(ctx context.Context, s lvm.State) {
	if h.cfg.BackupDir == "" {
		return
	}
	backups, err := os.ReadDir(h.cfg.BackupDir)
	if err != nil {
		h.log.Warn("cannot list the volume groups that this node had", "error", err)
		return
	}
	former := map[string]bool{}
	for _, file := range backups {
		former[file.Name()] = lvm.NamePattern.MatchString(file.Name())
	}
	for _, g := range s.Groups {
		former[g.Name] = false
	}
	for _, group := range slices.Sorted(maps.Keys(former)) {
		if former[group] && !strings.HasPrefix(group, ".") {
			h.removeStaleNames(ctx, group, dm.NoneOurs)
		}
	}
}
