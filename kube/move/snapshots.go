package move

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// A VolumeSnapshotContent names one snapshot for ever, so the snapshots of a volume stay on the node that it leaves. An event on the claim says which
// these are when the move begins, and again when it ends: users who annotate claims by hand have seen no plan.

// maxNamed bounds the snapshots that an event names.
const maxNamed = 8

func (s server) Snapshots(ctx context.Context, namespace, node, volume string) (names []string, err error) {
	err = s.ContentsOn(ctx, node, func(c *kubeclient.Content) {
		if c.Spec.Driver == api.DriverName && c.Spec.Source.VolumeHandle == volume && c.Spec.VolumeSnapshotRef.Namespace == namespace && c.DeletionTimestamp == nil {
			names = append(names, c.Spec.VolumeSnapshotRef.Name)
		}
	})
	slices.Sort(names)
	return names, err
}

// tellSnapshots writes that event before the first step of a move and before the last one. No move depends on it.
func (a *Agent) tellSnapshots(ctx context.Context, v *view, s step) {
	r := v.either()
	begins, ends := s.do == note && v.fresh != nil, s.do == forget && s.phase == api.MoveMoved
	if !begins && !ends || v.claim == nil || a.events == nil {
		return
	}
	names, err := a.objects.Snapshots(ctx, r.Namespace, r.From, r.Handle)
	if err == nil && len(names) > 0 {
		err = a.events.Record(ctx, kubeclient.Event{
			About: kubeclient.AboutClaim(r.Namespace, r.Claim, r.UID), Kind: corev1.EventTypeNormal, Reason: api.ReasonSnapshotsNotMoved, Message: staying(names, r.From),
		})
	}
	if err != nil {
		a.log.WarnContext(ctx, "cannot report which snapshots of a volume that moves stay on its node", "claim", r.key(), "node", r.From, "error", err)
	}
}

// staying says which snapshots stay on a node, and what the user can do with them.
func staying(names []string, node string) string {
	shown := strings.Join(names[:min(len(names), maxNamed)], ", ")
	if more := len(names) - maxNamed; more > 0 {
		shown += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("the snapshots %s of this claim stay on node %s, and are lost with it. Claims of a StorageClass with %s are restored from them on any node, others on node %s alone. Before you remove that node, restore or delete them, and take new ones of this claim",
		shown, node, api.ParameterRestoreOnOtherNodes, node)
}
