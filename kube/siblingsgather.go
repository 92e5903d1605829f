package kube

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Two pods may share a claim. Its volume stays on one node, and with it all volumes of both pods; and those of a third pod that
// shares a claim with the second. So the claims that waiting pods connect with one claim, over as many pods as it takes, are
// placed together. A claim that is bound ends the search: where its volume is, is decided, whatever else is made. A claim that
// this driver makes no volume for connects nothing: a network file system can be used on every node.

// gatherMost bounds how many claims of further pods are read for one request. The claims of the first pod are read in any case.
const gatherMost = 32

// gathering is the search for the claims that are placed together with one claim.
type gathering struct {
	find  func(ctx context.Context, name string) (*corev1.PersistentVolumeClaim, error) // nil: there is none
	as    func(ctx context.Context, claim *corev1.PersistentVolumeClaim) (s Sibling, ours bool, err error)
	claim string       // the one that is asked for
	pods  []waitingPod // in the order of hardestFirst

	taken []int // indexes of the pods that were found, without those that add no claim
	seen  map[int]bool
	read  map[string]*corev1.PersistentVolumeClaim // by name: claims that were found, of this driver or not
	reads int

	claims []Sibling
}

// gather finds the claims that waiting pods connect with a claim of their namespace.
func (a *Agent) gather(ctx context.Context, pods []waitingPod, namespace, claim string) (Company, error) {
	find := func(ctx context.Context, name string) (*corev1.PersistentVolumeClaim, error) {
		return a.client.claim(ctx, namespace, name)
	}
	g := &gathering{find: find, as: a.sibling, claim: claim, pods: hardestFirst(pods, claim)}
	return g.run(ctx)
}

// run gathers over one claim after the other.
func (g *gathering) run(ctx context.Context) (Company, error) {
	g.seen, g.read = map[int]bool{}, map[string]*corev1.PersistentVolumeClaim{g.claim: nil}
	for next := []string{g.claim}; len(next) > 0; next = next[1:] {
		for i := range g.pods {
			connected, err := g.take(ctx, i, next[0])
			if err != nil {
				return Company{}, err
			}
			next = append(next, connected...)
		}
	}
	c := Company{Claims: g.claims}
	slices.Sort(g.taken)
	for _, i := range g.taken {
		c.Pods = append(c.Pods, g.pods[i].name)
	}
	if len(g.taken) > 0 {
		c.PodUID = string(g.pods[g.taken[0]].uid)
	}
	return c, nil
}

// hardestFirst orders the pods that can connect something with the claim: those with the most claims come first, since they are the
// hardest to place; of equals, the oldest. So the order is the same whichever of its claims is asked for.
func hardestFirst(pods []waitingPod, claim string) []waitingPod {
	pods = slices.DeleteFunc(slices.Clone(pods), func(pod waitingPod) bool {
		return len(pod.claims) < 2 && !slices.Contains(pod.claims, claim)
	})
	slices.SortFunc(pods, func(a, b waitingPod) int {
		return cmp.Or(cmp.Compare(len(b.claims), len(a.claims)), a.created.Compare(b.created.Time), cmp.Compare(a.name, b.name))
	})
	return pods
}

// take adds the claims of a pod that uses the claim of this name, and answers those over which further pods may be connected.
func (g *gathering) take(ctx context.Context, i int, over string) (connected []string, err error) {
	pod := &g.pods[i]
	shared := g.read[over]
	if g.seen[i] || !slices.Contains(pod.claims, over) || shared != nil && !pod.owns(shared) {
		return nil, nil
	}
	g.seen[i] = true
	var further []string
	for _, name := range pod.claims {
		if _, known := g.read[name]; !known {
			further = append(further, name)
		}
	}
	first := len(g.taken) == 0
	if !first && (len(further) == 0 || g.reads+len(further) > gatherMost) {
		return nil, nil
	}
	g.taken = append(g.taken, i)
	if !first {
		g.reads += len(further)
	}
	for _, name := range further {
		claim, err := g.find(ctx, name)
		if err != nil {
			return nil, err
		}
		if claim == nil || !pod.owns(claim) {
			continue // another pod may use it all the same
		}
		g.read[name] = claim
		s, ours, err := g.as(ctx, claim)
		if err != nil {
			return nil, err
		}
		if !ours {
			continue
		}
		s.Indirect = over != g.claim
		g.claims = append(g.claims, s)
		if !s.Bound {
			connected = append(connected, name)
		}
	}
	return connected, nil
}
