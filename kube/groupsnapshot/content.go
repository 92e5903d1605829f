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
	namespace          string // of its VolumeGroupSnapshot
	group              string // UID of its VolumeGroupSnapshot; "": none is bound yet
	volumes            []string
	existing           string // handle of a group snapshot that exists: the content was made by hand
	members            []string
	handle             string // in its status
	ready              bool   // the same
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
		name: c.Name, uid: string(c.UID), version: c.ResourceVersion, node: c.Labels[api.LabelManagedBy], namespace: c.Spec.GroupSnapshotRef.Namespace,
		group: string(c.Spec.GroupSnapshotRef.UID), volumes: c.Spec.Source.VolumeHandles, existing: c.Spec.Source.Existing.GroupSnapshotHandle,
		members: c.Spec.Source.Existing.SnapshotHandles,
		handle:  c.Status.GroupSnapshotHandle, ready: c.Status.ReadyToUse,
		marked: marked, deleting: c.DeletionTimestamp != nil, condemned: condemned, retained: c.Spec.DeletionPolicy == "Retain", finalizers: c.Finalizers,
	}, true
}

// item is what waits for the content's next action.
func (c content) item() item { return item{c.namespace, c.name} }

// keepHandles drops the handles after the first one that is too many: each node keeps every content without a label, and the reflector
// collects all of a list.
func keepHandles(handles []string) []string {
	return slices.Clone(handles[:min(len(handles), lvm.MaxGroupMembers+1)])
}

// strip drops what the Actor does not read.
func strip(o any) any {
	if c, ok := o.(*kubeclient.GroupContent); ok {
		c.ManagedFields = nil
		c.Annotations = kubeclient.Only(c.Annotations, api.AnnotationGroupBeingCreated, api.AnnotationGroupBeingDeleted)
		c.Labels = kubeclient.Only(c.Labels, api.LabelManagedBy)
		c.Spec.Source.VolumeHandles = keepHandles(c.Spec.Source.VolumeHandles)
		c.Spec.Source.Existing.SnapshotHandles = keepHandles(c.Spec.Source.Existing.SnapshotHandles)
	}
	return o
}

// groupSnapshotName is CSI's name of the content's group snapshot.
func (c content) groupSnapshotName() string { return api.PrefixGroupSnapshot + c.group }
