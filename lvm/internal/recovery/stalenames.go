package recovery

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
func (r *Recovery) removeStaleNames(ctx context.Context, group lvm.VGName, ours func(uuid string) bool) {
	waiting, cancel := context.WithTimeout(ctx, oplock.LockPatience)
	defer cancel()
	unlock, err := oplock.LockVG(waiting, r.engine.Config.LockDir, group) // an admin's lvm may be creating a device
	if err != nil {
		r.engine.Log.Warn("not checking for names in /dev that an earlier version left", "vg", group, "error", err)
		return
	}
	defer unlock()
	removed, err := r.engine.Machine.Kernel.RemoveStaleNames(group, ours)
	if err != nil {
		r.engine.Log.Warn("cannot check all names in /dev that an earlier version left", "vg", group, "error", err)
	}
	if len(removed) > 0 {
		r.engine.Log.Warn("removed names in /dev that an earlier version left; devices and volumes are unchanged", "vg", group, "names", removed)
	}
}

// isUsed returns a function that reports whether a device's UUID belongs to a volume that this cluster uses, or to a part or
// layer of one.
func (r *Recovery) isUsed(g lvm.Group) func(uuid string) bool {
	used := map[string]bool{}
	for _, lv := range r.engine.InUse(g, r.engine.Config.Cluster) {
		for _, part := range lvm.Components(g, lv) {
			used[lvm.DeviceUUID(g.UUID, part.UUID)] = true
		}
	}
	return func(uuid string) bool { return used[uuid[:min(len(uuid), dmUUIDLength)]] }
}

// dmUUIDLength is the length of "LVM-" with the UUIDs of a group and a volume; a layer's suffix follows.
const dmUUIDLength = 4 + 32 + 32

// removeNamesOfFormerGroups is removeStaleNames for groups that an admin renamed or removed since the driver backed them up.
func (r *Recovery) removeNamesOfFormerGroups(ctx context.Context, s lvm.State) {
	if r.engine.Config.BackupDir == "" {
		return
	}
	backups, err := os.ReadDir(r.engine.Config.BackupDir)
	if err != nil {
		r.engine.Log.Warn("cannot list the volume groups that this node had", "error", err)
		return
	}
	former := map[string]bool{}
	for _, file := range backups {
		former[file.Name()] = lvm.NamePattern.MatchString(file.Name())
	}
	for _, g := range s.Groups {
		former[string(g.Name)] = false
	}
	for _, group := range slices.Sorted(maps.Keys(former)) {
		if former[group] && !strings.HasPrefix(group, ".") {
			r.removeStaleNames(ctx, lvm.VGName(group), dm.NoneOurs)
		}
	}
}
