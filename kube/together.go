package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
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
// therefore checks, as soon as the scheduler selects this node, whether all of the pod's claims fit here. If they do not, it returns
// them to the scheduler. Velero reads the selected node every two seconds, and keeps the first that it reads.

const (
	// selectedFor is how long after the selection the agent checks a claim. Later its volume may exist already, for the other claim.
	selectedFor = 10 * time.Second
	// fittedFor is how long a check counts for all claims of a pod: the scheduler selects the node for all of them at once.
	fittedFor = 30 * time.Second
)

// Fit checks whether this node has capacity for the volumes of all these claims of a pod. lvm.KindInsufficientCapacity: it has not, and
// will publish less for some time.
type Fit func(ctx context.Context, namespace, podUID string, claims []api.PodClaim) error

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

// placeTogether returns the claims of the claim's pod to the scheduler if this node lacks capacity for all of them.
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
	all := append([]api.PodClaim{one}, peers.Claims...)
	err = a.together.fit(ctx, claim.Namespace, peers.PodUID, all)
	if err == nil {
		a.together.record(peers.PodUID)
		return nil
	}
	if lvm.KindOf(err) != lvm.KindInsufficientCapacity {
		return err
	}
	for _, c := range all {
		if err := a.returnClaim(ctx, claim.Namespace, c.Name, all, peers.Pods); err != nil {
			return err
		}
	}
	return nil
}

// returnClaim removes this node from an unbound claim: the pods need all these claims on one node.
func (a *Agent) returnClaim(ctx context.Context, namespace, name string, all []api.PodClaim, pods []string) error {
	claim, err := a.client.Claim(ctx, namespace, name)
	if err != nil || claim == nil || claim.Spec.VolumeName != "" || pending.NodeOfClaim(claim, nil) != a.node {
		return err
	}
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return a.unselect(ctx, claim, fmt.Sprintf("node %s has insufficient capacity for claims %s together, which %s needs on one node: node %s is no longer selected",
		a.node, strings.Join(names, " and "), "pod "+strings.Join(pods, " and pod "), a.node))
}
