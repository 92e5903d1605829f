package kubeclient

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// GroupSnapshotVersion is that of the group snapshot objects (KEP-3476).
var GroupSnapshotVersion = schema.GroupVersion{Group: api.GroupSnapshotGroup, Version: "v1"}

// KindGroupContent is the kind of GroupContent.
const KindGroupContent = "VolumeGroupSnapshotContent"

// GroupContent holds the fields that this package reads of a VolumeGroupSnapshotContent.
type GroupContent struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Driver         string `json:"driver"`
		DeletionPolicy string `json:"deletionPolicy"`
		Source         struct {
			VolumeHandles []string `json:"volumeHandles"`
			Existing      struct {
				GroupSnapshotHandle string   `json:"volumeGroupSnapshotHandle"`
				SnapshotHandles     []string `json:"volumeSnapshotHandles"`
			} `json:"groupSnapshotHandles"`
		} `json:"source"`
		GroupSnapshotRef struct {
			UID types.UID `json:"uid"`
		} `json:"volumeGroupSnapshotRef"`
	} `json:"spec"`
	Status struct {
		GroupSnapshotHandle string `json:"volumeGroupSnapshotHandle"`
		ReadyToUse          bool   `json:"readyToUse"`
		Error               struct {
			Message string `json:"message"`
		} `json:"error"`
	} `json:"status"`
}

// GroupContentList is a VolumeGroupSnapshotContentList.
type GroupContentList = listOf[GroupContent, *GroupContent]

// DeepCopyObject implements runtime.Object.
func (c *GroupContent) DeepCopyObject() runtime.Object {
	other := *c
	c.DeepCopyInto(&other.ObjectMeta)
	other.Spec.Source.VolumeHandles = slices.Clone(c.Spec.Source.VolumeHandles)
	other.Spec.Source.Existing.SnapshotHandles = slices.Clone(c.Spec.Source.Existing.SnapshotHandles)
	return &other
}

// The status of a content names the group snapshot to delete, and a node writes the status: its token can name any group snapshot of the volume
// group there. An admin can give a group snapshot, or one of its snapshots, to a second content. So the driver deletes a group snapshot only if
// no other object needs it, as it does with volumes and snapshots (Agent.MayDelete of package kube).

// deletionPolicyDelete is the deletionPolicy of a content whose snapshots are deleted with it.
const deletionPolicyDelete = "Delete"

// MayDeleteGroup returns nil if each content that has the group snapshot or one of its snapshots is being deleted with the deletion policy Delete. It
// costs one list of all contents of either kind. lvm.KindConflict: a content needs it; lvm.KindBusy: the API server does not answer.
func (c *Client) MayDeleteGroup(ctx context.Context, id lvm.ID) error {
	needed, members := "", membersOf(id)
	err := c.EachGroupContent(ctx, func(other *GroupContent) {
		if HasGroup(other, id) && IsNeeded(other.DeletionTimestamp, other.Spec.DeletionPolicy) {
			needed = KindGroupContent + " " + other.Name
		}
	})
	if err == nil {
		err = c.EachContent(ctx, func(other *Content) {
			if hasMember(other, members) && IsNeeded(other.DeletionTimestamp, other.Spec.DeletionPolicy) {
				needed = KindContent + " " + other.Name
			}
		})
	}
	switch {
	case err != nil:
		return lvm.Errorf(lvm.KindBusy, "cannot determine whether another object has group snapshot %s; it is not deleted before that is known: %w", id, err)
	case needed != "":
		return lvm.Errorf(lvm.KindConflict, "group snapshot %s is not deleted: %s has it or one of its snapshots, and is not being deleted with the deletion policy Delete. "+
			"Delete that object, or set the deletion policy of the content that is to be deleted to Retain", id, needed)
	}
	return nil
}

// IsNeeded reports whether a content needs its snapshots: they are not deleted with it now.
func IsNeeded(deleted *metav1.Time, policy string) bool {
	return deleted == nil || policy != deletionPolicyDelete
}

// membersOf returns the names that the snapshots of a group snapshot can have. Their volume groups may differ from the group snapshot's.
func membersOf(id lvm.ID) map[string]bool {
	names := map[string]bool{}
	for i := range lvm.MaxGroupMembers {
		names[lvm.SnapshotName(lvm.MemberName(id.LV, i))] = true
	}
	return names
}

// hasMember reports whether an admin gave a snapshot of a group snapshot to its own content. The contents that the snapshot controller
// makes of a group snapshot go with it.
func hasMember(c *Content, members map[string]bool) bool {
	given, err := lvm.ParseID(c.Spec.Source.SnapshotHandle)
	return err == nil && c.Spec.Driver == api.DriverName && members[given.LV]
}
