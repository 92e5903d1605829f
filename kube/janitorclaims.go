package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// lookAtClaim frees an unbound claim that was given to a node which is gone: nobody there makes its volume, and the
// scheduler keeps to its choice.
func (r *janitorRound) lookAtClaim(ctx context.Context, key, node string) (time.Duration, error) {
	if _, there, _ := r.nodes.find(node); there {
		return 0, nil
	}
	namespace, name := claimKey(key)
	claim, err := r.client.claim(ctx, namespace, name)
	if err != nil || claim == nil || claim.Spec.VolumeName != "" || claim.Annotations[annSelectedNode] != node {
		return 0, err
	}
	class, err := r.class(ctx, classOf(claim))
	if err != nil || class.Provisioner != DriverName {
		return 0, err
	}
	if there, err := r.client.node(ctx, node); err != nil || there != nil {
		return 0, err
	}
	if _, err := r.client.patchClaim(ctx, claim, "", patch{annotations: map[string]any{annSelectedNode: nil}}); err != nil {
		return 0, fmt.Errorf("free claim %s: %w", key, err)
	}
	message := fmt.Sprintf("node %s, which was selected for this claim, is not in the cluster any more: the scheduler chooses again", node)
	r.log.InfoContext(ctx, message, "claim", key)
	return 0, r.events.tell(ctx, news{aboutClaim(namespace, name, claim.UID), corev1.EventTypeNormal, reasonFreedClaim, message})
}
