package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
)

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
	offer, err := a.copyOffer(sn)
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
