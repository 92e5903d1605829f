package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/pending"
)

// csi-provisioner can miss a claim for which the scheduler has selected this node; the claim then waits until the scheduler
// gives up after ten minutes. When csi-provisioner returns a claim to the scheduler, its library stores its own copy of the
// claim in its cache (sig-storage-lib-external-provisioner, rescheduleProvisioning). If the scheduler has selected this
// node again in between, that copy hides it. Any change of the claim makes csi-provisioner retry it, so the agent changes
// an annotation. It ignores claims for which csi-provisioner creates no volume (pending.IsBoundByOthers).

// How long a claim of this node may wait without a CreateVolume call: a burst of claims reaches the driver within a few
// seconds. If a retry does not help, further ones come at growing intervals.
const (
	retryFirst = 10 * time.Second
	retryMost  = 5 * time.Minute
)

// retrigger changes a claim that has waited long enough without a CreateVolume call since its last change, or gives it back.
func (a *Agent) retrigger(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	key, id := kubeclient.KeyOf(claim), string(claim.UID)
	since, waits := a.claims.waitsSince(key)
	if !waits {
		return nil
	}
	if left := time.Until(since.Add(max(a.retryDelay, a.retries.Get(id)))); left > 0 {
		a.queue.AddAfter(kubeclient.ObjectKey{Kind: kubeclient.KindClaim, Key: key}, left)
		return nil
	}
	if given, err := a.giveBack(ctx, claim); given || err != nil {
		return err
	}
	now := time.Now()
	_, err := a.client.PatchClaim(ctx, claim, "", kubeclient.Patch{Annotations: map[string]any{api.AnnotationRetriedAt: now.UTC().Format(time.RFC3339)}})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return nil // the watch brings the new version
	case err != nil:
		return fmt.Errorf("cannot make csi-provisioner retry claim %s: %w", key, err)
	}
	a.retries.Next(id, now)
	a.log.InfoContext(ctx, "made csi-provisioner retry a claim", "claim", key, "waitedFor", now.Sub(since).Round(time.Second))
	return nil
}

// csi-provisioner knows no claim of another node (kube/apiproxy), so it finds no source for a clone that the scheduler placed on this
// node, and never calls the driver, whose answer would return the claim to the scheduler. The agent returns it, unless it can become a full copy. Nor
// does csi-provisioner know another driver's claim: it says that the source does not exist, and the agent says what is true.

// giveBack removes this node from a clone whose source is on another one; false: it is not, as far as is known, or may be.
func (a *Agent) giveBack(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	from := sourceOf(claim)
	if from.kind != kubeclient.KindClaim {
		return false, nil
	}
	pv, err := a.volumeOfClaim(ctx, from.key)
	if err != nil || pv == nil {
		return false, err
	}
	if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != api.DriverName {
		return false, a.reportForeignSource(ctx, claim, from, pv)
	}
	node := pending.NodeOf(pv)
	if node == a.node || a.isPlacedByScheduler(claim) || kubeclient.Placed(pv, node) != nil {
		return false, nil //nolint:nilerr // the volume is on no one node
	}
	return true, a.unselect(ctx, claim, fmt.Sprintf("the source of this claim, %s %s, is on node %s: node %s is no longer selected", from.kind, from.key, node, a.node))
}

// reportForeignSource says on a claim that its source has a volume of another driver. The event is repeated while that lasts.
func (a *Agent) reportForeignSource(ctx context.Context, claim *corev1.PersistentVolumeClaim, from source, pv *corev1.PersistentVolume) error {
	of := "a volume of no CSI driver"
	if pv.Spec.CSI != nil {
		of = "a volume of the driver " + pv.Spec.CSI.Driver
	}
	message := fmt.Sprintf("the source of this claim, %s %s, has %s, and %s copies only its own volumes. Delete this claim, and create it with a StorageClass of the source's driver, "+
		"or without a source: a pod that uses both claims can copy the data", from.kind, from.key, of, api.DriverName)
	return a.events.Record(ctx, kubeclient.Event{About: kubeclient.AboutClaim(claim.Namespace, claim.Name, claim.UID), Kind: corev1.EventTypeWarning, Reason: api.ReasonSourceOfOtherDriver, Message: message})
}

// volumeOfClaim returns the PersistentVolume of a bound claim, of any driver; nil: there is none.
func (a *Agent) volumeOfClaim(ctx context.Context, key string) (*corev1.PersistentVolume, error) {
	namespace, name := kubeclient.ClaimKey(key)
	claim, err := a.client.Claim(ctx, namespace, name)
	if err != nil || claim == nil || claim.Spec.VolumeName == "" {
		return nil, err
	}
	pv, err := a.client.Volume(ctx, claim.Spec.VolumeName)
	if err != nil || pv == nil || kubeclient.Bound(pv, claim) != nil {
		return nil, err
	}
	return pv, nil
}
