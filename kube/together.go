package kube

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

// A claim with a selector gets the volume of another claim. Velero restores the data of a claim so: it waits until the scheduler has
// selected a node for the claim, and then creates another claim on that node, whose volume it later binds to the first one. So no
// CreateVolume call shows which volumes one pod needs, and the scheduler compares each claim alone with the published capacity. The agent
// therefore checks, as soon as the scheduler selects this node, whether all of the pod's claims can be here. If they cannot, it returns
// them to the scheduler. Velero reads the selected node every two seconds, and keeps the first that it reads.

const (
	// selectedFor is how long after the selection the agent checks a claim. Later its volume may exist already, for the other claim.
	selectedFor = 10 * time.Second
	// fittedFor is how long a check counts for all claims of a pod: the scheduler selects the node for all of them at once.
	fittedFor = 30 * time.Second
)

// Fit checks whether this node can have the volumes of a claim and of its peers. lvm.KindInsufficientCapacity: it cannot, and the error says why.
type Fit func(ctx context.Context, namespace string, claim api.PodClaim, peers api.PodClaims) error

// together remembers the pods whose claims fit on this node.
type together struct {
	fit Fit // nil: claims with a selector are not checked

	mu     sync.Mutex
	fitted map[string]time.Time // by the pod's UID
}

// PlaceTogether makes the agent check claims with a selector. The caller calls it before Run.
func (a *Agent) PlaceTogether(fit Fit) { a.together.fit = fit }

// knows reports whether the claims of a pod were found to fit a moment ago.
func (t *together) knows(pod string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for uid, at := range t.fitted {
		if time.Since(at) > fittedFor {
			delete(t.fitted, uid)
		}
	}
	_, known := t.fitted[pod]
	return known
}

func (t *together) record(pod string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fitted == nil {
		t.fitted = map[string]time.Time{}
	}
	t.fitted[pod] = time.Now()
}

// jobForSelecting finds the job for an unbound claim with a selector for which the scheduler has just selected this node.
func (a *Agent) jobForSelecting(claim *corev1.PersistentVolumeClaim) (job, bool) {
	if a.together.fit == nil || claim.Spec.Selector == nil || !a.claims.selectedWithin(kubeclient.KeyOf(claim), selectedFor) {
		return job{}, false
	}
	return job{string(claim.UID) + "/together", func(ctx context.Context) (bool, error) { return false, a.placeTogether(ctx, claim) }}, true
}

// placeTogether returns the claims of the claim's pod to the scheduler if this node cannot have all of them.
func (a *Agent) placeTogether(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	ctx, cancel := context.WithTimeout(ctx, podClaimsTimeout)
	defer cancel()
	pods, err := a.pods.waiting(ctx, claim.Namespace)
	if err != nil {
		return err
	}
	peers, err := a.gather(ctx, pods, claim.Namespace, claim.Name)
	if err != nil || len(peers.Claims) == 0 || a.together.knows(peers.PodUID) {
		return err
	}
	one, ours, err := a.podClaim(ctx, claim)
	if err != nil || !ours {
		return err
	}
	if slices.ContainsFunc(peers.Claims, func(c api.PodClaim) bool { return c.Bound }) {
		return nil // its node is fixed
	}
	cannot := a.together.fit(ctx, claim.Namespace, one, peers)
	if cannot == nil {
		a.together.record(peers.PodUID)
		return nil
	}
	if lvm.KindOf(cannot) != lvm.KindInsufficientCapacity {
		return cannot
	}
	for _, c := range append([]api.PodClaim{one}, peers.Claims...) {
		if err := a.returnClaim(ctx, claim.Namespace, c.Name, cannot); err != nil {
			return err
		}
	}
	return nil
}

// returnClaim removes this node from an unbound claim.
func (a *Agent) returnClaim(ctx context.Context, namespace, name string, why error) error {
	claim, err := a.client.Claim(ctx, namespace, name)
	if err != nil || claim == nil || claim.Spec.VolumeName != "" || pending.NodeOfClaim(claim, nil) != a.node {
		return err
	}
	return a.unselect(ctx, claim, fmt.Sprintf("%v: node %s is no longer selected", why, a.node))
}
