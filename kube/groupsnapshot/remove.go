package groupsnapshot

import (
	"context"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// remove deletes the group snapshot, and then clears the handle.
func (a *Actor) remove(ctx context.Context, c content) error {
	id, err := lvm.ParseID(c.handle)
	if err == nil && id.IsGroupSnapshot() {
		if err := a.deleteUnneeded(ctx, id); err != nil {
			return a.fail(ctx, c, err)
		}
	}
	return a.patch(ctx, c, "status", map[string]any{"status": map[string]any{"volumeGroupSnapshotHandle": nil, "readyToUse": nil, "creationTime": nil, "error": nil}})
}

// deleteUnneeded deletes a group snapshot unless another object needs it.
func (a *Actor) deleteUnneeded(ctx context.Context, id lvm.ID) error {
	if err := a.Client.MayDeleteGroup(ctx, id); err != nil {
		return err
	}
	return a.Host.DeleteGroupSnapshot(ctx, id)
}

// release deletes a group snapshot that the status does not name, and removes the finalizer.
func (a *Actor) release(ctx context.Context, c content) error {
	if id, may := c.unnamed(); may {
		err := a.deleteUnneeded(ctx, id)
		if lvm.KindOf(err) == lvm.KindNotLocal && a.neverTaken(ctx, c, id) {
			err = nil
		}
		if err != nil {
			return a.fail(ctx, c, err)
		}
	}
	left := slices.DeleteFunc(slices.Clone(c.finalizers), func(f string) bool { return f == api.FinalizerGroupContent })
	return a.patch(ctx, c, "", metadata(c, map[string]any{"finalizers": left}))
}

// neverTaken reports whether the volume group of a group snapshot that no other group has a member of is another node's, so that none was taken.
// A ready group snapshot has a member in the group of the content's first volume, which was on this node when the content got the label. If that
// group is missing now, nothing is known.
func (a *Actor) neverTaken(ctx context.Context, c content, id lvm.ID) bool {
	if strings.HasPrefix(c.volumes[0], string(id.VG)+"/") {
		return false
	}
	err := a.lookup(ctx, c.volumes[0])
	kind := lvm.KindOf(err)
	return err == nil || kind == lvm.KindNotFound || kind == lvm.KindNotManaged
}
