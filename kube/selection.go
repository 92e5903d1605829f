package kube

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/pending"
)

// The scheduler does not change the selected node of a claim. If that node does not exist, because it was deleted or a restored claim
// names a node of another cluster, the claim waits for ever. Every node sees the claim; the first one that finds the node missing
// returns the claim to the scheduler. Tenants write the annotation, too: what the API server would refuse must not cost a request of each node.

const (
	selectionFirst = time.Minute      // How long a claim waits before a node checks its selected node: most claims get their volume within seconds.
	selectionApart = 4 * time.Minute  // The nodes check one after the other within this time.
	selectionAgain = 10 * time.Minute // Interval of further checks, also of one whose request was refused, and how long a node counts as existing without another request.
)

// mayReturn reports whether a node may return the claim to the scheduler: Kubernetes has assigned it to this driver, as the admission policy
// demands. Until then it does nothing for the claim.
func mayReturn(claim *corev1.PersistentVolumeClaim) bool {
	return pending.NodeOfClaim(claim, nil) != "" && claim.Annotations[api.AnnotationStorageProvisioner] == api.DriverName
}

// checkSelection returns the claim to the scheduler if its selected node does not exist.
func (a *Agent) checkSelection(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	key, selected := kubeclient.KeyOf(claim), pending.NodeOfClaim(claim, nil)
	object := kubeclient.ObjectKey{Kind: kubeclient.KindClaim, Key: key}
	since, waits := a.claims.waitsSince(key)
	if !waits {
		return nil
	}
	if left := time.Until(since.Add(selectionFirst + a.turnOf(claim))); left > 0 {
		a.queue.AddAfter(object, left)
		return nil
	}
	there, err := a.nodes.has(ctx, a.client, selected)
	if err != nil {
		return err
	}
	if there {
		a.queue.AddAfter(object, selectionAgain)
		return nil
	}
	err = a.unselect(ctx, claim, fmt.Sprintf("node %s is not in the cluster; this claim returns to the scheduler, which selects another node", kubeclient.Quoted(selected)))
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		a.queue.AddAfter(object, selectionAgain)
		a.log.WarnContext(ctx, "cannot return a claim, whose selected node does not exist, to the scheduler", "claim", key, "node", kubeclient.Quoted(selected), "in", selectionAgain, "error", err)
		return nil
	}
	return err
}

// unselect returns an unbound claim to the scheduler, and says why in an event. A claim that has changed stays as it is: the watch brings the new
// version.
func (a *Agent) unselect(ctx context.Context, claim *corev1.PersistentVolumeClaim, why string) error {
	key := kubeclient.KeyOf(claim)
	_, err := a.client.PatchClaim(ctx, claim, "", kubeclient.Patch{Annotations: map[string]any{api.AnnotationSelectedNode: nil}})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("cannot return claim %s to the scheduler: %w", key, err)
	}
	a.log.InfoContext(ctx, "returned a claim to the scheduler", "claim", key, "reason", why)
	return a.events.Record(ctx, kubeclient.Event{About: kubeclient.AboutClaim(claim.Namespace, claim.Name, claim.UID), Kind: corev1.EventTypeNormal,
		Reason: api.ReasonSelectedNodeRemoved, Message: why})
}

// turnOf returns when, within selectionApart, this node checks the claim.
func (a *Agent) turnOf(claim *corev1.PersistentVolumeClaim) time.Duration {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(a.node + "/" + string(claim.UID))) // never fails
	return time.Duration(hash.Sum64() % uint64(selectionApart))
}

// existingNodes remembers which nodes exist: many claims may wait for a few nodes.
type existingNodes struct {
	mu   sync.Mutex
	seen map[string]time.Time // by name
}

// has reports whether the node exists, or existed within selectionAgain.
func (n *existingNodes) has(ctx context.Context, client *kubeclient.Client, name string) (bool, error) {
	n.mu.Lock()
	seen := n.seen[name]
	n.mu.Unlock()
	if time.Since(seen) < selectionAgain {
		return true, nil
	}
	node, err := client.Node(ctx, name)
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.seen, name)
	if err != nil || node == nil {
		return false, err
	}
	if n.seen == nil {
		n.seen = map[string]time.Time{}
	}
	n.seen[name] = time.Now()
	return true, nil
}
