package claimevents

import (
	"context"
	"slices"

	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/pending"
)

// A pod may name thousands of claims, and the requests of nodelvm-controller share one limiter. An event that lacks another volume of the pod is
// still true: it lists an obstacle less, and none is written about a claim for which no obstacle of some node is left.
const (
	otherClaims    = 20  // Of all pods of one claim.
	requestsAtOnce = 100 // Of one round; a claim needs at most twice otherClaims.
)

// otherVolumes finds the nodes of the volumes that pods use beside the claim that waits. It lasts for one round.
type otherVolumes struct {
	client   *kubeclient.Client
	nodes    map[string]string // by a claim's namespace/name; "": the claim has no volume on one node, or does not exist
	requests int
}

// exhausted reports whether the next claim may exceed the requests of the round.
func (o *otherVolumes) exhausted() bool { return o.requests+2*otherClaims > requestsAtOnce }

// add adds the nodes of the other volumes of the claim's pods: this volume must be on the same node.
func (o *otherVolumes) add(ctx context.Context, f *pending.Facts) error {
	f.OtherVolumes = map[string]string{}
	for _, name := range otherNames(f) {
		node, err := o.nodeOf(ctx, f.Claim.Namespace, name)
		if err != nil {
			return err
		}
		if node != "" {
			f.OtherVolumes[name] = node
		}
	}
	return nil
}

// otherNames returns the first names of other claims of the claim's pods, at most otherClaims.
func otherNames(f *pending.Facts) (names []string) {
	for _, pod := range f.Pods {
		for _, name := range pending.ClaimNames(&pod) {
			if len(names) == otherClaims {
				return names
			}
			if name != f.Claim.Name && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// nodeOf returns the node of a claim's volume; "": it has none there, or does not exist. It asks for each claim once.
func (o *otherVolumes) nodeOf(ctx context.Context, namespace, name string) (node string, err error) {
	key := namespace + "/" + name
	if node, known := o.nodes[key]; known {
		return node, nil
	}
	o.requests++
	claim, err := o.client.Claim(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	if claim != nil && claim.Spec.VolumeName != "" {
		o.requests++
		pv, err := o.client.Volume(ctx, claim.Spec.VolumeName)
		if err != nil {
			return "", err
		}
		node = pending.NodeOfClaim(claim, pv)
	}
	o.nodes[key] = node
	return node, nil
}
