package kube

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

// isPlacedByScheduler reports whether a claim can become a full copy. The store of classes does not keep a class of another driver.
func (a *Agent) isPlacedByScheduler(claim *corev1.PersistentVolumeClaim) bool {
	class, ok, _ := a.classes.Find(kubeclient.ClassOf(claim))
	return ok && a.copies != nil && pending.IsPlacedByScheduler(claim, class)
}

// jobForOffer finds the job for a claim that the scheduler places, not on this node.
func (a *Agent) jobForOffer(claim *corev1.PersistentVolumeClaim, from source) (job, bool) {
	offer := a.offerCopy
	if from.kind == kubeclient.KindClaim {
		offer = a.offerClone
	}
	return job{string(claim.UID) + "/offer", func(ctx context.Context) (bool, error) { return false, offer(ctx, claim, from) }},
		from.kind == kubeclient.KindClaim || pending.NodeOfClaim(claim, nil) != ""
}

// offerClone lets another node clone the volume of a claim on this one. csi-provisioner there finds no claim of this node but those with the finalizer that
// it adds to the source of a clone (kube/apiproxy): this node adds it, before the scheduler selects a node.
func (a *Agent) offerClone(ctx context.Context, claim *corev1.PersistentVolumeClaim, from source) error {
	pv, err := a.volumeOf(ctx, from.key)
	switch {
	case err != nil:
		return err
	case pv != nil:
		err = a.protect(ctx, from.key, pv.Spec.ClaimRef.UID)
	}
	if err != nil || pending.NodeOfClaim(claim, nil) == "" {
		return err
	}
	if pv != nil {
		a.copies.OfferClone(claim)
	}
	return a.checkSelection(ctx, claim)
}

// protect adds csi-provisioner's finalizer to a claim that is cloned.
func (a *Agent) protect(ctx context.Context, key string, uid types.UID) error {
	namespace, name := kubeclient.ClaimKey(key)
	claim, err := a.client.Claim(ctx, namespace, name)
	if err != nil || claim == nil || claim.UID != uid || claim.DeletionTimestamp != nil || slices.Contains(claim.Finalizers, api.FinalizerCloned) {
		return err
	}
	finalizers := append(slices.Clone(claim.Finalizers), api.FinalizerCloned)
	body := map[string]any{"metadata": map[string]any{"resourceVersion": claim.ResourceVersion, "finalizers": finalizers}}
	err = a.client.Patch(ctx, "persistentvolumeclaims", namespace, name, "", body, &corev1.PersistentVolumeClaim{})
	if kubeclient.UnlessNotFound(err) != nil {
		return fmt.Errorf("cannot add the finalizer %s to claim %s, which is cloned: %w", api.FinalizerCloned, key, err)
	}
	return nil
}

// offerCopy says on the content of a snapshot of this node how other nodes copy it, because a claim is to be restored from it on one of them. A
// node does not know which others restore its snapshots, so the offer stays; without a claim that the node may serve, it opens nothing.
func (a *Agent) offerCopy(ctx context.Context, claim *corev1.PersistentVolumeClaim, from source) error {
	content, binding, err := a.contentOf(ctx, from.key)
	if binding {
		a.queue.AddAfter(kubeclient.ObjectKey{Kind: kubeclient.KindClaim, Key: kubeclient.KeyOf(claim)}, kubeclient.BackoffFirst)
	}
	if err != nil {
		return err
	}
	if content == nil {
		return a.checkSelection(ctx, claim)
	}
	id, err := lvm.ParseID(content.Status.SnapshotHandle)
	if err != nil {
		return nil //nolint:nilerr // no snapshot of this driver
	}
	sn, err := a.volumes.LookupSnapshot(ctx, id)
	if here, err := found(err); err != nil || !here {
		return err
	}
	offer, err := a.copies.Offer(sn)
	if err != nil {
		return err
	}
	if content.Annotations[api.AnnotationCopyOffer] != offer {
		body := map[string]any{"metadata": map[string]any{"resourceVersion": content.ResourceVersion, "annotations": map[string]any{api.AnnotationCopyOffer: offer}}}
		err = kubeclient.PatchBy(ctx, a.client.Snapshots, "volumesnapshotcontents", "", content.Name, "", body, &kubeclient.Content{})
		switch {
		case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
			return nil // the watch brings the new version
		case err != nil:
			return fmt.Errorf("cannot say on VolumeSnapshotContent %s how node %s copies it for claim %s: %w", content.Name, kubeclient.Quoted(claim.Annotations[api.AnnotationSelectedNode]), kubeclient.KeyOf(claim), err)
		}
	}
	return a.checkSelection(ctx, claim)
}
