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
			Namespace string    `json:"namespace"`
			UID       types.UID `json:"uid"`
		} `json:"volumeGroupSnapshotRef"`
	} `json:"spec"`
	Status struct {
		GroupSnapshotHandle string `json:"volumeGroupSnapshotHandle"`
		ReadyToUse          bool   `json:"readyToUse"`
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

// MayDeleteGroup returns nil if each content that has the group snapshot or one of its snapshots is being deleted with the deletion policy Delete, or
// goes with one that is. lvm.KindConflict: a content needs it; lvm.KindBusy: the API server does not answer.
func (c *Client) MayDeleteGroup(ctx context.Context, id lvm.ID) error {
	needed, err := c.groupNeededBy(ctx, id)
	switch {
	case err != nil:
		return lvm.Errorf(lvm.KindBusy, "cannot determine whether another object has group snapshot %s; it is not deleted before that is known: %w", id, err)
	case needed != "":
		return lvm.Errorf(lvm.KindConflict, "group snapshot %s is not deleted: %s has it or one of its snapshots, and is not being deleted with the deletion policy Delete. "+
			"Delete that object, or set the deletion policy of the content that is to be deleted to Retain", id, needed)
	}
	return nil
}

// groupNeededBy returns an object that needs the group snapshot; "": none. It costs one list of all contents of either kind, and a request for each
// content to which an admin gave a member.
func (c *Client) groupNeededBy(ctx context.Context, id lvm.ID) (needed string, err error) {
	leaving := map[types.UID]bool{} // VolumeGroupSnapshots that wait for the deletion
	if err := c.EachGroupContent(ctx, func(other *GroupContent) {
		switch {
		case !HasGroup(other, id):
		case IsNeeded(other.DeletionTimestamp, other.Spec.DeletionPolicy):
			needed = KindGroupContent + " " + other.Name
		default:
			leaving[other.Spec.GroupSnapshotRef.UID] = true
		}
	}); err != nil || needed != "" {
		return needed, err
	}
	var given []Content
	members := membersOf(id)
	if err := c.EachContent(ctx, func(other *Content) {
		if hasMember(other, members) && IsNeeded(other.DeletionTimestamp, other.Spec.DeletionPolicy) {
			given = append(given, *other)
		}
	}); err != nil {
		return "", err
	}
	for i := range given {
		if goes, err := c.goesWith(ctx, &given[i], leaving); err != nil || !goes {
			return KindContent + " " + given[i].Name, err
		}
	}
	return "", nil
}

// goesWith reports whether the content of a member, which an admin made, is deleted after one of these VolumeGroupSnapshots: its deletion policy is
// Delete, its VolumeSnapshot is being deleted, and the VolumeGroupSnapshot owns that. The snapshot controller deletes such a content only when the
// VolumeGroupSnapshot is gone, which waits for the deletion of the group snapshot.
func (c *Client) goesWith(ctx context.Context, member *Content, groups map[types.UID]bool) (bool, error) {
	if member.Spec.DeletionPolicy != deletionPolicyDelete {
		return false, nil
	}
	s, err := c.Snapshot(ctx, member.Spec.VolumeSnapshotRef.Namespace, member.Spec.VolumeSnapshotRef.Name)
	if err != nil || s == nil || s.DeletionTimestamp == nil || boundSnapshot(member, s) != nil {
		return false, err
	}
	return slices.ContainsFunc(s.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == kindGroupSnapshot && groups[o.UID] }), nil
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
