package groupsnapshot

import (
	"context"
	"strings"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

// label labels a content with this node's name if its first volume, or its group snapshot, is here.
func (a *Actor) label(ctx context.Context, c content) error {
	here, err := a.isHere(ctx, c)
	if err != nil || !here {
		a.queue.AddAfter(c.item(), elsewhereInterval)
		return err
	}
	return a.patch(ctx, c, "", metadata(c, map[string]any{"labels": map[string]any{api.LabelManagedBy: a.Node}}))
}

// isHere reports whether this node has what decides on a content's node. For a deletion the volume group suffices: what was in it may be gone.
func (a *Actor) isHere(ctx context.Context, c content) (bool, error) {
	var err error
	switch {
	case c.existing != "":
		var id lvm.ID
		if id, err = lvm.ParseID(c.existing); err == nil {
			_, err = a.Host.LookupGroupSnapshot(ctx, id)
		}
	case len(c.volumes) > 0:
		err = a.lookup(ctx, c.volumes[0])
	default:
		return false, nil
	}
	if c.deleting && err != nil && lvm.KindOf(err) == lvm.KindNotFound {
		return true, nil
	}
	return isFound(err)
}

func (a *Actor) lookup(ctx context.Context, handle string) error {
	id, err := lvm.ParseID(handle)
	if err == nil {
		_, err = a.Host.Lookup(ctx, id)
	}
	return err
}

func isFound(err error) (bool, error) {
	switch {
	case err == nil:
		return true, nil
	case lvm.KindOf(err) == lvm.KindInternal || lvm.KindOf(err) == lvm.KindBusy:
		return false, err
	}
	return false, nil
}

// spec is the request for a content's group snapshot. The error names the claims and nodes of volumes that are not all here.
func (a *Actor) spec(ctx context.Context, c content) (lvm.GroupSnapshotSpec, error) {
	spec := lvm.GroupSnapshotSpec{Name: c.groupSnapshotName()}
	if len(c.volumes) > lvm.MaxGroupMembers {
		return spec, lvm.Errorf(lvm.KindInvalid, "the group has more than %d volumes, the maximum: select fewer claims by a narrower label", lvm.MaxGroupMembers)
	}
	var elsewhere []string
	for _, handle := range c.volumes {
		here, err := isFound(a.lookup(ctx, handle))
		if err != nil {
			return spec, err
		}
		if !here {
			elsewhere = append(elsewhere, handle)
			continue
		}
		id, err := lvm.ParseID(handle)
		if err != nil {
			return spec, err
		}
		spec.Sources = append(spec.Sources, id)
	}
	if len(elsewhere) == 0 {
		return spec, nil
	}
	var places []string
	for _, handle := range elsewhere {
		places = append(places, a.place(ctx, handle))
	}
	return spec, lvm.Errorf(lvm.KindInvalid, "a group snapshot is of one node's volumes, and %d of %d are on node %s. The others: %s. Select claims of one node by their labels, or keep their pods together (docs/howto/snapshots.md)",
		len(spec.Sources), len(c.volumes), a.Node, strings.Join(places, "; "))
}

// place describes where a volume that is not here is: its claim and node.
func (a *Actor) place(ctx context.Context, handle string) string {
	_, name, _ := strings.Cut(handle, "/")
	pv, err := a.Client.Volume(ctx, name)
	if err != nil || pv == nil || pv.Spec.CSI == nil || pv.Spec.CSI.VolumeHandle != handle {
		return "volume " + handle
	}
	place := "volume " + pv.Name
	if claim := pv.Spec.ClaimRef; claim != nil {
		place = "claim " + claim.Namespace + "/" + claim.Name
	}
	if node := pending.NodeOf(pv); node != "" {
		place += " on node " + node
	}
	return place
}
