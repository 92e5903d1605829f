package kube

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
)

// Two pods may share a claim. Its volume stays on one node, and with it all volumes of both pods, and those of a third pod
// that shares a claim with the second. So the claims that waiting pods connect with one claim, over any number of pods, are
// placed together. A bound claim ends the search: its node is fixed. A claim that never has a volume of this driver
// connects nothing: a network file system is usable on every node.

const (
	// gatherMost bounds how many claims of further pods one request reads. It reads the claims of the first pod until missingMost do
	// not exist.
	gatherMost = 32
	// missingMost is how many missing claims of a pod one request asks for. Until they exist the scheduler chooses no node for the pod,
	// and a pod may name thousands.
	missingMost = 8
)

// gathering is the search for the peers of one claim.
type gathering struct {
	find  func(ctx context.Context, name string) (*corev1.PersistentVolumeClaim, error) // nil: it does not exist
	as    func(ctx context.Context, claim *corev1.PersistentVolumeClaim) (s api.PodClaim, ours bool, err error)
	claim string       // the claim that starts the search
	pods  []waitingPod // in the order of hardestFirst

	taken []int // indexes of the pods found, without those that add no claim
	seen  map[int]bool
	read  map[string]*corev1.PersistentVolumeClaim // by name: claims found, of this driver or not
	reads int

	claims []api.PodClaim
}

// gather finds the peers of a claim in its namespace.
func (a *Agent) gather(ctx context.Context, pods []waitingPod, namespace, claim string) (api.PodClaims, error) {
	find := func(ctx context.Context, name string) (*corev1.PersistentVolumeClaim, error) {
		return a.client.Claim(ctx, namespace, name)
	}
	g := &gathering{find: find, as: a.podClaim, claim: claim, pods: hardestFirst(pods, claim)}
	return g.run(ctx)
}

// run searches the pods of one claim after the other.
func (g *gathering) run(ctx context.Context) (api.PodClaims, error) {
	g.seen, g.read = map[int]bool{}, map[string]*corev1.PersistentVolumeClaim{g.claim: nil}
	for next := []string{g.claim}; len(next) > 0; next = next[1:] {
		for i := range g.pods {
			connected, err := g.addPod(ctx, i, next[0])
			if err != nil {
				return api.PodClaims{}, err
			}
			next = append(next, connected...)
		}
	}
	c := api.PodClaims{Claims: g.claims}
	slices.Sort(g.taken)
	for _, i := range g.taken {
		c.Pods = append(c.Pods, g.pods[i].name)
	}
	if len(g.taken) > 0 {
		c.PodUID = string(g.pods[g.taken[0]].uid)
	}
	return c, nil
}

// hardestFirst orders the pods that can connect other claims with the claim. Pods with the most claims come first, because
// they are the hardest to place, then the oldest. So the order is the same for each of these claims.
func hardestFirst(pods []waitingPod, claim string) []waitingPod {
	pods = slices.DeleteFunc(slices.Clone(pods), func(pod waitingPod) bool {
		return len(pod.claims) < 2 && !slices.Contains(pod.claims, claim)
	})
	slices.SortFunc(pods, func(a, b waitingPod) int {
		return cmp.Or(cmp.Compare(len(b.claims), len(a.claims)), a.created.Compare(b.created.Time), cmp.Compare(a.name, b.name))
	})
	return pods
}

// addPod adds the claims of a pod that uses the claim named over, and returns those that may connect further pods.
func (g *gathering) addPod(ctx context.Context, i int, over string) (connected []string, err error) {
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
	missing := 0
	for _, name := range further {
		claim, err := g.find(ctx, name)
		if err != nil {
			return nil, err
		}
		if claim == nil || !pod.owns(claim) {
			if missing++; missing == missingMost {
				break
			}
			continue // another pod may still use it
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
