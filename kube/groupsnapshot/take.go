package groupsnapshot

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// take marks the content, takes its group snapshot, and writes the status. An error goes into the status too, and is retried.
func (a *Actor) take(ctx context.Context, c content) error {
	if !c.marked {
		if err := a.patch(ctx, c, "", metadata(c, map[string]any{"annotations": map[string]any{api.AnnotationGroupBeingCreated: "yes"}})); err != nil {
			return err
		}
	}
	spec, err := a.spec(ctx, c)
	var made lvm.GroupSnapshot
	if err == nil {
		made, err = a.Host.CreateGroupSnapshot(ctx, spec, a.Sync)
	}
	if err != nil {
		return a.fail(ctx, c, a.NameThinClass(err))
	}
	return a.patch(ctx, c, "status", statusOf(made))
}

// adopt writes the status of a content that was made by hand for an existing group snapshot.
func (a *Actor) adopt(ctx context.Context, c content) error {
	id, err := lvm.ParseID(c.existing)
	var found lvm.GroupSnapshot
	if err == nil {
		found, err = a.Host.LookupGroupSnapshot(ctx, id)
	}
	if err == nil {
		err = checkMembers(found, c.members)
	}
	if err != nil {
		return a.fail(ctx, c, err)
	}
	return a.patch(ctx, c, "status", statusOf(found))
}

// maxMessage bounds an error in a status.
const maxMessage = 1024

// fail writes an error into the content's status, from where the snapshot controller copies it to the VolumeGroupSnapshot. If no snapshot can
// exist, it ends the creation, so that the VolumeGroupSnapshot can be deleted.
func (a *Actor) fail(ctx context.Context, c content, cause error) error {
	message := "node " + a.Node + ": " + cause.Error()
	body := map[string]any{"status": map[string]any{
		"readyToUse": false,
		"error":      map[string]any{"message": message[:min(len(message), maxMessage)], "time": metav1.Now()},
	}}
	if err := a.patch(ctx, c, "status", body); err != nil {
		return fmt.Errorf("%w (%w)", cause, err)
	}
	if lvm.KindOf(cause) == lvm.KindBusy || lvm.KindOf(cause) == lvm.KindInternal {
		return cause
	}
	if err := a.patch(ctx, c, "", map[string]any{"metadata": map[string]any{"annotations": map[string]any{api.AnnotationGroupBeingCreated: nil}}}); err != nil {
		return fmt.Errorf("%w (%w)", cause, err)
	}
	return cause
}

// statusOf is the status of a content with a group snapshot.
func statusOf(made lvm.GroupSnapshot) map[string]any {
	var members []map[string]any
	for _, sn := range made.Members {
		members = append(members, map[string]any{
			"volumeHandle": sn.Source.String(), "snapshotHandle": sn.ID.String(), "creationTime": made.Created.UnixNano(),
			"readyToUse": true, "restoreSize": int64(sn.Size),
		})
	}
	return map[string]any{"status": map[string]any{
		"volumeGroupSnapshotHandle": made.ID.String(), "creationTime": metav1.NewTime(made.Created), "readyToUse": true, "error": nil,
		"volumeSnapshotInfoList": members,
	}}
}
