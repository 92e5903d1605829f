package groupsnapshot

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
)

// The status of a content names the group snapshot to delete, and a node writes the status: its token can name any group snapshot of the volume
// group there. An admin can give a group snapshot, or one of its snapshots, to a second content. So the driver deletes a group snapshot only if
// no other object needs it, as it does with volumes and snapshots (Agent.MayDelete of package kube).

// deletionPolicyDelete is the deletionPolicy of a content whose snapshots are deleted with it.
const deletionPolicyDelete = "Delete"

// MayDelete returns nil if each content that has the group snapshot or one of its snapshots is being deleted with the deletion policy Delete. It
// costs one list of all contents of either kind. lvm.KindConflict: a content needs it; lvm.KindBusy: the API server does not answer.
func MayDelete(ctx context.Context, client *kubeclient.Client, id lvm.ID) error {
	needed, members := "", membersOf(id)
	err := client.EachGroupContent(ctx, func(other *kubeclient.GroupContent) {
		if kubeclient.HasGroup(other, id) && isNeeded(other.DeletionTimestamp, other.Spec.DeletionPolicy) {
			needed = kubeclient.KindGroupContent + " " + other.Name
		}
	})
	if err == nil {
		err = client.EachContent(ctx, func(other *kubeclient.Content) {
			if hasMember(other, members) && isNeeded(other.DeletionTimestamp, other.Spec.DeletionPolicy) {
				needed = kubeclient.KindContent + " " + other.Name
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

func isNeeded(deleted *metav1.Time, policy string) bool {
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
func hasMember(c *kubeclient.Content, members map[string]bool) bool {
	given, err := lvm.ParseID(c.Spec.Source.SnapshotHandle)
	return err == nil && c.Spec.Driver == api.DriverName && members[given.LV]
}
