package groupsnapshot

import (
	"slices"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
)

// content holds the kept fields of a VolumeGroupSnapshotContent.
type content struct {
	name, uid, version string
	node               string // of its label; "": none
	group              string // UID of its VolumeGroupSnapshot; "": none is bound yet
	volumes            []string
	existing           string // handle of a group snapshot that exists: the content was made by hand
	members            []string
	handle             string // in its status
	ready, failed      bool   // the same
	marked             bool   // being created
	deleting           bool   // it is being deleted
	condemned          bool   // the snapshot controller says that its group snapshot is to be deleted
	retained           bool   // its deletion policy
	finalizers         []string
}

func keep(o any) (content, bool) {
	c, ok := o.(*kubeclient.GroupContent)
	if !ok || c.Spec.Driver != api.DriverName {
		return content{}, false
	}
	_, marked := c.Annotations[api.AnnotationGroupBeingCreated]
	_, condemned := c.Annotations[api.AnnotationGroupBeingDeleted]
	return content{
		name: c.Name, uid: string(c.UID), version: c.ResourceVersion, node: c.Labels[api.LabelManagedBy], group: string(c.Spec.GroupSnapshotRef.UID),
		volumes: c.Spec.Source.VolumeHandles, existing: c.Spec.Source.Existing.GroupSnapshotHandle,
		members: c.Spec.Source.Existing.SnapshotHandles,
		handle:  c.Status.GroupSnapshotHandle, ready: c.Status.ReadyToUse, failed: c.Status.Error.Message != "",
		marked: marked, deleting: c.DeletionTimestamp != nil, condemned: condemned, retained: c.Spec.DeletionPolicy == "Retain", finalizers: c.Finalizers,
	}, true
}

// keepHandles drops the handles after the first one that is too many: each node keeps every content without a label, and the reflector
// collects all of a list.
func keepHandles(handles []string) []string {
	return slices.Clone(handles[:min(len(handles), lvm.MaxGroupMembers+1)])
}

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

// groupSnapshotName is CSI's name of the content's group snapshot.
func (c content) groupSnapshotName() string { return api.PrefixGroupSnapshot + c.group }
