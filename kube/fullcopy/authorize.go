package fullcopy

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/move"
	"github.com/nodelvm/nodelvm/pending"
)

// Offer is the text of the annotation that says how other nodes copy a snapshot of this one.
func (a *Agent) Offer(sn lvm.Snapshot) (string, error) {
	text, err := json.Marshal(a.engine.Offer(sn))
	return string(text), err
}

// MayPull decides whether a peer may copy a snapshot of this node; nil: it may. The token is one of the account of the driver's pods, and bound to
// the node where the claim waits for its volume; the claim has the peer's key. account is the one of the driver's pods.
func (a *Agent) MayPull(ctx context.Context, account string, r move.Request) error {
	refuse := func(format string, args ...any) error { return lvm.Errorf(lvm.KindInvalid, format, args...) }
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	user, node, err := a.client.ReviewPeer(ctx, r.Token)
	switch {
	case err != nil:
		return lvm.Errorf(lvm.KindBusy, "%w", err)
	case node == "" || user != account:
		return refuse("the peer's token is not one of %s that is bound to a node", account)
	}
	parts := strings.Split(r.Claim, "/")
	if len(parts) != 3 {
		return refuse("%s identifies no claim", kubeclient.Quoted(r.Claim))
	}
	claim, err := a.client.Claim(ctx, parts[0], parts[1])
	switch {
	case err != nil:
		return lvm.Errorf(lvm.KindBusy, "%w", err)
	case claim == nil || string(claim.UID) != parts[2] || !waitsOn(claim, node):
		return refuse("claim %s does not exist, or does not wait for a volume on node %s", kubeclient.Quoted(r.Claim), kubeclient.Quoted(node))
	case r.Key == "" || claim.Annotations[api.AnnotationCopyKey] != r.Key:
		return refuse("node %s has not published the key of the peer on claim %s", node, kubeclient.KeyOf(claim))
	}
	class, err := a.client.Class(ctx, kubeclient.ClassOf(claim))
	switch {
	case err != nil:
		return lvm.Errorf(lvm.KindBusy, "cannot read the class of claim %s: %w", kubeclient.KeyOf(claim), err)
	case class == nil || !pending.IsPlacedByScheduler(claim, class):
		return refuse("the class of claim %s does not let it be copied to another node", kubeclient.KeyOf(claim))
	case pending.ClonedFrom(claim) != "":
		return a.mayClone(ctx, claim, r.Volume)
	}
	_, err = restored(ctx, a.client, claim, a.node, r.Volume)
	return err
}
