package nodeloss

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/pending"
)

// checkClaim removes the selected node from an unbound claim if that node is gone or out of service: no driver on it
// creates the volume, and the scheduler does not change its choice.
func (r *round) checkClaim(ctx context.Context, key, node string) (time.Duration, error) {
	namespace, name := kubeclient.ClaimKey(key)
	claim, err := r.Client.Claim(ctx, namespace, name)
	if err != nil || claim == nil || claim.Spec.VolumeName != "" || pending.NodeOfClaim(claim, nil) != node {
		return 0, err
	}
	class, err := r.class(ctx, kubeclient.ClassOf(claim))
	if err != nil || class.Provisioner != api.DriverName {
		return 0, err
	}
	there, err := r.Client.Node(ctx, node)
	if err != nil {
		return 0, err
	}
	lost := lossOf(node, there, "")
	if lost.kind == lossNone {
		return 0, nil
	}
	if _, err := r.Client.PatchClaim(ctx, claim, "", kubeclient.Patch{Annotations: map[string]any{api.AnnotationSelectedNode: nil}}); err != nil {
		return 0, fmt.Errorf("return claim %s to the scheduler: %w", key, err)
	}
	message := lost.String() + "; this claim returns to the scheduler, which selects another node"
	r.Log.InfoContext(ctx, message, "claim", key)
	return 0, r.Events.Record(ctx, kubeclient.Event{About: kubeclient.AboutClaim(namespace, name, claim.UID), Kind: corev1.EventTypeNormal, Reason: api.ReasonSelectedNodeRemoved, Message: message})
}
