package groupsnapshot

import (
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// action is what the node of a content does next.
type action int

const (
	nothing   action = iota
	take             // Take the group snapshot, and write the status.
	adopt            // Write the status of a group snapshot that exists.
	unmark           // Remove the mark of a creation that has ended.
	remove           // Delete the group snapshot, and clear the handle in the status.
	release          // Delete a group snapshot that the status does not name, and remove the finalizer.
	takeLabel        // Label it with this node, if its first volume or its group snapshot is here.
)

// next decides the next action for a content. It follows csi-snapshotter 8.7 (syncGroupSnapshotContent and shouldDeleteGroupSnapshotContent in
// pkg/sidecar-controller). It differs in one case: it ends a creation before the deletion, so that a mark that a killed driver left does not hold the
// content for ever. The group snapshot of such a creation is deleted with the finalizer.
func (c content) next(node string) action {
	switch {
	case c.node == "":
		return takeLabel
	case c.node != node:
		return nothing
	case c.deleting:
		return c.nextDeletion()
	case c.existing != "" && !c.ready:
		return adopt
	case c.existing == "" && c.handle == "" && c.group != "" && len(c.volumes) > 0:
		return take
	case c.marked:
		return unmark
	}
	return nothing
}

func (c content) nextDeletion() action {
	unbound := c.existing != "" && c.group == ""
	switch {
	case !unbound && c.marked:
		return unmark
	case !unbound && !c.condemned:
		return nothing
	case !c.retained && c.handle != "":
		return remove
	case slices.Contains(c.finalizers, api.FinalizerGroupContent):
		return release
	}
	return nothing
}

// unnamed returns the ID of a group snapshot that may exist although the status does not name it: the driver was killed in between. The volumes
// may be gone since. False: none can exist, or it is to be retained.
func (c content) unnamed() (lvm.ID, bool) {
	n := len(c.volumes)
	if c.retained || c.handle != "" || c.existing != "" || c.group == "" || n == 0 || n > lvm.MaxGroupMembers {
		return lvm.ID{}, false
	}
	spec := lvm.GroupSnapshotSpec{Name: c.groupSnapshotName()}
	for _, handle := range c.volumes {
		id, err := lvm.ParseID(handle)
		if err != nil {
			return lvm.ID{}, false
		}
		spec.Sources = append(spec.Sources, id)
	}
	return spec.ID(), true
}

// checkMembers refuses snapshot handles that are not exactly those of the group snapshot.
func checkMembers(found lvm.GroupSnapshot, handles []string) error {
	want := found.Handles()
	if got := slices.Sorted(slices.Values(handles)); !slices.Equal(got, want) {
		return lvm.Errorf(lvm.KindInvalid, "group snapshot %s has the snapshots %s, and volumeSnapshotHandles must list exactly these", found.ID, strings.Join(want, ", "))
	}
	return nil
}
