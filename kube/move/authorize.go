package move

import (
	"context"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
)

// reviewer returns the account and the node of a token with the audience api.AudienceMove; "": it has none.
type reviewer func(ctx context.Context, token string) (account, node string, err error)

// MayPull decides whether a peer with a token and a TLS key may copy a volume of this node. nil: it may. The volume is held for a move, or has a round. The
// token is bound to the node that the move's record names, and that node's answer has the key. The claim still names that node, or the
// volume is handed over. account is the one of the driver's pods.
func (a *Agent) MayPull(ctx context.Context, account, token, key string, id lvm.ID, uuid string) error {
	refuse := func(format string, args ...any) error { return lvm.Errorf(lvm.KindInvalid, format, args...) }
	user, node, err := a.review(ctx, token)
	switch {
	case err != nil:
		return lvm.Errorf(lvm.KindBusy, "%w", err)
	case node == "" || user != account:
		return refuse("the peer's token is not one of %s that is bound to a node", account)
	}
	locals, err := a.engine.Volumes(ctx)
	if err != nil {
		return err
	}
	for i := range locals {
		l, r := &locals[i], parseRecord(locals[i].Record)
		if l.ID != id || l.UUID != uuid {
			continue
		}
		copies := l.State == stateMoving || l.State == stateMoved || l.State == lvm.StateReady && len(l.Rounds) > 0
		if !copies || r == nil || r.To != node || r.From != a.node {
			return refuse("volume %s does not move to node %s", id, kubeclient.Quoted(node))
		}
		return a.mayPull(ctx, l, r, key)
	}
	return refuse("volume %s does not move", id)
}

func (a *Agent) mayPull(ctx context.Context, l *Local, r *Record, key string) error {
	pv, err := a.objects.Volume(ctx, r.name())
	if err != nil {
		return lvm.Errorf(lvm.KindBusy, "%w", err)
	}
	if shapeOf(pv, r.From, r.Handle) != parked || pv.Annotations[api.AnnotationMovingTo] != r.To {
		return lvm.Errorf(lvm.KindInvalid, "PersistentVolume %s does not move to node %s", r.name(), r.To)
	}
	if key == "" || answered(pv).Key != key {
		return lvm.Errorf(lvm.KindInvalid, "node %s has not published the key of the peer on PersistentVolume %s", r.To, r.name())
	}
	if l.State == stateMoved {
		return nil
	}
	claim, err := a.objects.Claim(ctx, r.Namespace, r.Claim)
	if err != nil {
		return lvm.Errorf(lvm.KindBusy, "%w", err)
	}
	if wants(sameClaim(claim, r.name())) != r.To {
		return lvm.Errorf(lvm.KindInvalid, "claim %s does not ask for node %s", r.key(), r.To)
	}
	return nil
}
