package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// lookAtClaim removes the selected node from an unbound claim if that node is gone or out of service: no driver on it
// creates the volume, and the scheduler does not change its choice.
func (r *janitorRound) lookAtClaim(ctx context.Context, key, node string) (time.Duration, error) {
	namespace, name := claimKey(key)
	claim, err := r.client.claim(ctx, namespace, name)
	if err != nil || claim == nil || claim.Spec.VolumeName != "" || claim.Annotations[annSelectedNode] != node {
		return 0, err
	}
	class, err := r.class(ctx, classOf(claim))
	if err != nil || class.Provisioner != DriverName {
		return 0, err
	}
	there, err := r.client.node(ctx, node)
	if err != nil {
		return 0, err
	}
	lost := lossOf(node, there, "")
	if lost.kind == lossNone {
		return 0, nil
	}
	if _, err := r.client.patchClaim(ctx, claim, "", patch{annotations: map[string]any{annSelectedNode: nil}}); err != nil {
		return 0, fmt.Errorf("return claim %s to the scheduler: %w", key, err)
	}
	message := lost.String() + "; this claim returns to the scheduler, which selects another node"
	r.log.InfoContext(ctx, message, "claim", key)
	return 0, r.events.tell(ctx, news{aboutClaim(namespace, name, claim.UID), corev1.EventTypeNormal, reasonFreedClaim, message})
}
