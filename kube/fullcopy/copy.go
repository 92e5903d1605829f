package fullcopy

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/move"
	"github.com/nodelvm/nodelvm/pending"
)

// maxOffer bounds what a source's annotation can make the target decode.
const maxOffer = 4 << 10

// Copy is controller.FullCopies'.
func (a *Agent) Copy(ctx context.Context, spec lvm.Spec) error {
	have, err := a.have(ctx, spec)
	if err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	claim, err := a.claimOf(asking, spec.Claim, spec.Name)
	switch {
	case err != nil:
		return busy(spec, err)
	case claim == nil:
		return a.refuse(ctx, have, lvm.Errorf(lvm.KindNotFound, "cannot copy %s to node %s: claim %s does not exist, or does not wait for a volume there", spec.Source, a.node, spec.Claim))
	case have != nil && have.State == lvm.StateReceived:
		return a.finish(ctx, *have)
	}
	offer, from, err := a.offerFor(asking, claim, spec)
	if err != nil {
		return a.refuse(ctx, have, err)
	}
	if claim.Annotations[api.AnnotationCopyKey] != a.engine.Key() {
		if _, err := a.client.PatchClaim(asking, claim, "", kubeclient.Patch{Annotations: map[string]any{api.AnnotationCopyKey: a.engine.Key()}}); err != nil {
			return busy(spec, err)
		}
	}
	p, err := a.engine.Fetch(ctx, offer, move.ClaimOf(claim.Namespace, claim.Name, string(claim.UID)), spec)
	switch {
	case err != nil:
		return err
	case p.Volume.State == lvm.StateReceived:
		return a.finish(ctx, p.Volume)
	}
	a.noteWait(spec.Name)
	return lvm.Errorf(lvm.KindBusy, "node %s copies %s from node %s: %s of %s are here%s", a.node, sourceOf(claim), from, p.Done, p.Total, why(p))
}

// sourceOf describes what a claim is copied from.
func sourceOf(claim *corev1.PersistentVolumeClaim) string {
	if name := pending.ClonedFrom(claim); name != "" {
		return "claim " + claim.Namespace + "/" + name
	}
	return "VolumeSnapshot " + claim.Namespace + "/" + pending.SnapshotOf(claim)
}

func why(p move.Progress) string {
	if p.Problem == nil {
		return ""
	}
	if _, queued := errors.AsType[*move.Queue](p.Problem); queued {
		return "; it " + p.Problem.Error()
	}
	return "; the last attempt ended, and is repeated: " + p.Problem.Error()
}

// have returns the volume of an earlier call; nil: there is none. What an earlier call received of another source is no use.
func (a *Agent) have(ctx context.Context, spec lvm.Spec) (*lvm.Volume, error) {
	copies, err := a.volumes.FullCopies(ctx)
	if err != nil {
		return nil, busy(spec, err)
	}
	i := slices.IndexFunc(copies, func(v lvm.Volume) bool { return v.Name == spec.Name })
	if i < 0 {
		return nil, nil
	}
	if v := copies[i]; v.Source != spec.Source {
		return nil, a.refuse(ctx, &v, lvm.Errorf(lvm.KindBusy, "volume %q was to become %s, and the request is for %s; retry", v.Name, v.Source.Description(), spec.Source.Description()))
	}
	return &copies[i], nil
}

// refuse discards a volume that cannot become complete, and returns the error. An error after which csi-provisioner asks again is returned alone.
func (a *Agent) refuse(ctx context.Context, have *lvm.Volume, err error) error {
	if have == nil || lvm.KindOf(err) == lvm.KindBusy && have.Source != (lvm.ID{}) && errors.Is(err, errUndecided) {
		return err
	}
	if left := a.discard(ctx, *have, err.Error()); left != nil {
		return lvm.Errorf(lvm.KindBusy, "%w; and what was copied cannot be removed yet: %w", err, left)
	}
	return err
}

func (a *Agent) finish(ctx context.Context, v lvm.Volume) error {
	_, err := a.engine.Finish(ctx, v.ID, v.UUID)
	return err
}

// errUndecided marks errors that say nothing of whether the claim may have the copy.
var errUndecided = errors.New("undecided")

// busy is the error for a request that is repeated.
func busy(spec lvm.Spec, err error) error {
	return lvm.Errorf(lvm.KindBusy, "cannot copy %s for claim %s yet: %w", spec.Source, spec.Claim, errors.Join(err, errUndecided))
}

// offerFor returns how to copy what a claim is copied from, and the node that has it.
func (a *Agent) offerFor(ctx context.Context, claim *corev1.PersistentVolumeClaim, spec lvm.Spec) (offer move.Offer, node string, err error) {
	find := a.snapshotOffer
	if pending.ClonedFrom(claim) != "" {
		find = a.cloneOffer
	}
	text, node, snapshot, err := find(ctx, claim, spec)
	if err != nil {
		return move.Offer{}, "", err
	}
	if node == a.node {
		return move.Offer{}, "", busy(spec, errors.New("it is on this node, and its volume group cannot be read"))
	}
	if text == "" || len(text) > maxOffer || json.Unmarshal([]byte(text), &offer) != nil || offer.Volume != snapshot.String() {
		return move.Offer{}, "", busy(spec, errors.New("node "+kubeclient.Quoted(node)+", which has it, has not said yet how to copy it; the node must be up, and its driver run with moves (chart value move.enabled)"))
	}
	return offer, node, nil
}

// snapshotOffer returns what the node of a claim's snapshot says about how to copy it, that node, and the snapshot.
func (a *Agent) snapshotOffer(ctx context.Context, claim *corev1.PersistentVolumeClaim, spec lvm.Spec) (text, node string, snapshot lvm.ID, err error) {
	c, err := restored(ctx, a.client, claim, "", spec.Source)
	if err != nil {
		return "", "", lvm.ID{}, err
	}
	return c.Annotations[api.AnnotationCopyOffer], c.Labels[api.LabelManagedBy], spec.Source, nil
}

// restored returns the content of the snapshot that a claim is restored from, if the objects of the cluster say so. The claim names a VolumeSnapshot,
// that and the content name each other, and the content has exactly this snapshot, which is on the node; "": on any. The errors are those of
// kubeclient.RestoreChain, with errUndecided if they are lvm.KindBusy.
func restored(ctx context.Context, client *kubeclient.Client, claim *corev1.PersistentVolumeClaim, node string, of lvm.ID) (*kubeclient.Content, error) {
	spec := lvm.Spec{Claim: kubeclient.KeyOf(claim), Source: of}
	name := pending.SnapshotOf(claim)
	if name == "" {
		return nil, lvm.Errorf(lvm.KindInvalid, "cannot restore snapshot %s for claim %s: the claim's dataSourceRef names no VolumeSnapshot in its own namespace", of, spec.Claim)
	}
	s, err := client.Snapshot(ctx, claim.Namespace, name)
	switch {
	case err != nil:
		return nil, busy(spec, err)
	case s == nil:
		return nil, lvm.Errorf(lvm.KindNotFound, "cannot restore a snapshot for claim %s: its VolumeSnapshot %s does not exist", spec.Claim, name)
	}
	c, err := client.Content(ctx, s.Status.Content)
	if err != nil {
		return nil, busy(spec, err)
	}
	if node == "" && c != nil {
		node = c.Labels[api.LabelManagedBy]
	}
	if c == nil || node == "" || !c.Status.ReadyToUse {
		return nil, busy(spec, errors.New("its VolumeSnapshotContent "+kubeclient.Quoted(s.Status.Content)+" does not exist, is not ready, or names no node"))
	}
	if err := kubeclient.RestoreChain(claim, s, c, node, of); err != nil {
		if lvm.KindOf(err) == lvm.KindBusy {
			err = busy(spec, err)
		}
		return nil, err
	}
	return c, nil
}
