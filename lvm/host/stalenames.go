package host

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/dm"
)

// removeStaleNames removes what earlier versions of the driver have left in the host's /dev for a group, where they made the
// names themselves: after an admin's lvremove such a name leads to whatever volume gets the device's number next.
func (h *Host) removeStaleNames(ctx context.Context, group string, ours func(uuid string) bool) {
	waiting, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	unlock, err := lockVG(waiting, h.cfg.LockDir, group) // an admin's lvm may be making a device
	if err != nil {
		h.log.Warn("whether an earlier version has left names in /dev is not looked at", "vg", group, "error", err)
		return
	}
	defer unlock()
	removed, err := h.machine.Kernel.RemoveStaleNames(group, ours)
	if err != nil {
		h.log.Warn("names in /dev that an earlier version has left could not all be looked at", "vg", group, "error", err)
	}
	if len(removed) > 0 {
		h.log.Warn("names in /dev that an earlier version has left were removed; devices and volumes are untouched", "vg", group, "names", removed)
	}
}

// removeNamesOf removes what an admin's lvm has left in the host's /dev of a volume that the driver has just removed, and of its
// hidden parts, which before lists: where no udev runs, lvm makes such a name with the device, and only lvm would remove it.
// The group's lock must be held, which keeps the driver from making a volume of that name. after is the group as it is now.
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
		h.log.Info("names in /dev that an lvm command left of a removed volume were removed", "vg", before.Name, "lv", lv.Name, "names", removed)
	}
}

// isUsed tells by a device's UUID whether it is of one of our volumes in the group, a layer of one, or a part.
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

// removeNamesOfFormerGroups is removeStaleNames for groups that were renamed or removed since the driver backed them up.
func (h *Host) removeNamesOfFormerGroups(ctx context.Context, s lvm.State) {
	if h.cfg.BackupDir == "" {
		return
	}
	backups, err := os.ReadDir(h.cfg.BackupDir)
	if err != nil {
		h.log.Warn("which volume groups this node had is not known", "error", err)
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
