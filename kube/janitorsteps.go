package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
)

// Reasons of the janitor's events.
const (
	reasonVolumeLost         = "VolumeLost"
	reasonVolumeLostResolved = "VolumeLostResolved"
	reasonVolumeInUse        = "VolumeInUse"
	reasonReleasedClaim      = "ClaimDeleted"
	reasonReleasedPod        = "PodDeleted"
	reasonReleasedVolume     = "PersistentVolumeDeleted"
	reasonAbandonedVolume    = "VolumeAbandoned"
	reasonFreedClaim         = "SelectedNodeRemoved"
	reasonClaimMismatch      = "ClaimMismatch"
	reasonSnapshotMismatch   = "SnapshotMismatch"
	reasonSnapshotLost       = "SnapshotLost"
	reasonReleasedSnapshot   = "SnapshotDeleted"
)

// Intervals of further checks for changes that no watch announces: a class gets its annotation, an event expires after an
// hour, a deleted pod ends.
const (
	tellAgain = 10 * time.Minute
	lookAgain = 5 * time.Second
)

// lookAtVolume does the next step for a volume. It sends no request for a volume that is not lost.
func (r *janitorRound) lookAtVolume(ctx context.Context, name, node string) (time.Duration, error) {
	pv, err := r.client.volume(ctx, name)
	if err != nil || pv == nil || nodeOf(pv) != node {
		return 0, err
	}
	s, err := r.see(ctx, pv, node)
	if err != nil {
		return 0, err
	}
	again, err := r.do(ctx, s, decide(s))
	if again == 0 && s.loss.kind == lossNone && pv.Annotations[annGroupLost] != "" {
		again = time.Minute // the node does not answer, and no watch announces that it answers again
	}
	return again, err
}

// see reads what decides the next step, and stops as soon as the rest cannot matter.
func (r *janitorRound) see(ctx context.Context, pv *corev1.PersistentVolume, name string) (sight, error) {
	s := sight{now: time.Now(), began: r.began, grace: r.cfg.Grace, pv: pv}
	node, err := r.client.node(ctx, name)
	if err != nil {
		return s, err
	}
	s.loss = lossOf(name, node, pv.Annotations[annGroupLost])
	vg, _, _ := strings.Cut(pv.Spec.CSI.VolumeHandle, "/")
	if s.loss.kind == lossNone {
		r.losses.ended(groupLossKey(name, vg))
	}
	s.lost, s.marked = r.noted(ctx, s.now, s.loss, vg, pv)
	if s.loss.kind == lossNone && s.marked.IsZero() && pv.Annotations[annPolicy] == "" {
		return s, nil
	}
	if s.claim, s.broken, err = r.boundTo(ctx, pv, name); err != nil || s.broken != nil || s.loss.kind == lossNone {
		return s, err
	}
	if s.optIn, err = r.releases(ctx, pv, s.claim); err != nil || s.claim == nil || !s.due() || !s.optIn {
		return s, err
	}
	var pods corev1.PodList
	if err := r.client.core.Get().Namespace(s.claim.Namespace).Resource("pods").Do(ctx).Into(&pods); err != nil {
		return s, fmt.Errorf("list the pods of namespace %s: %w", s.claim.Namespace, err)
	}
	s.users = usersOf(pods.Items, s.claim)
	return s, nil
}

// boundTo reads the claim that a volume is bound to; nil: the volume was never bound, or that claim no longer exists.
// broken: the volume names an existing claim, but they do not belong together.
func (r *janitorRound) boundTo(ctx context.Context, pv *corev1.PersistentVolume, node string) (claim *corev1.PersistentVolumeClaim, broken, err error) {
	sameHandle := r.volumes.keys(func(p place) bool { return p.handle == pv.Spec.CSI.VolumeHandle })
	if broken := placed(pv, node, sameHandle...); broken != nil {
		return nil, broken, nil
	}
	ref := pv.Spec.ClaimRef
	if ref == nil || ref.UID == "" {
		return nil, nil, nil
	}
	claim, err = r.client.claim(ctx, ref.Namespace, ref.Name)
	if err != nil || claim == nil || claim.UID != ref.UID {
		return nil, nil, err
	}
	if broken := chain(pv, claim, node, sameHandle...); broken != nil {
		return nil, broken, nil
	}
	return claim, nil, nil
}

// releases reports whether the storage class of a volume says release. The claim must have the same class.
func (r *janitorRound) releases(ctx context.Context, pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) (bool, error) {
	name := pv.Spec.StorageClassName
	if claim != nil && cmp.Or(claim.Annotations[corev1.BetaStorageClassAnnotation], classOf(claim)) != name {
		return false, nil
	}
	class, err := r.class(ctx, name)
	return err == nil && class.Provisioner == DriverName && class.Annotations[OnNodeLoss] == onNodeLossRelease, err
}

// class reads a storage class; a missing one has no provisioner.
func (r *janitorRound) class(ctx context.Context, name string) (class storagev1.StorageClass, err error) {
	if _, err = get(ctx, r.client.storage, "storageclasses", "", name, &class); err != nil {
		return class, fmt.Errorf("read storage class %s: %w", name, err)
	}
	return class, nil
}

// do does the step; the watch, or the returned time, brings the next one.
func (r *janitorRound) do(ctx context.Context, s sight, what step) (time.Duration, error) {
	switch what {
	case stepNothing:
		return 0, nil
	case stepForgive:
		return 0, r.forgive(ctx, s)
	case stepMark:
		s.marked = noteAt(s.now, s.pv.CreationTimestamp.Time, s.lost)
		if err := r.client.annotate(ctx, s.pv, map[string]any{annLostSince: s.marked.Format(time.RFC3339)}); err != nil {
			return 0, err
		}
		return r.tellLost(ctx, s) // at once: the owner must see a warning before the claim is deleted
	case stepTell:
		return r.tellLost(ctx, s)
	case stepInUse:
		user := s.users[slices.IndexFunc(s.users, s.alive)]
		return time.Minute, r.tell(ctx, s, corev1.EventTypeWarning, reasonVolumeInUse, fmt.Sprintf(
			"%s, and the storage class demands that this claim is deleted; but pod %s on node %s still uses it: delete the pod first",
			s.loss, user.Name, user.Spec.NodeName))
	case stepDeleteClaim:
		if err := r.deleteClaim(ctx, s); err != nil {
			return 0, err
		}
		return lookAgain, r.deletePods(ctx, s) // at once: a claim that only waiting pods use is deleted in a moment
	case stepDeletePods:
		return lookAgain, r.deletePods(ctx, s)
	case stepAwait:
		return lookAgain, nil
	case stepDeletePV:
		return 0, r.deletePV(ctx, s)
	case stepUnholdPV:
		return 0, r.unhold(ctx, s)
	case stepAbandon:
		return 0, r.abandon(ctx, s)
	case stepTellBroken:
		return tellAgain, r.tellBroken(ctx, reasonClaimMismatch, corev1.ObjectReference{
			APIVersion: "v1", Kind: kindVolume, Name: s.pv.Name, UID: s.pv.UID}, s.broken)
	}
	return 0, nil
}

// tellBroken writes an event on the object whose references do not agree, and on no other object.
func (r *janitorRound) tellBroken(ctx context.Context, reason string, about corev1.ObjectReference, broken error) error {
	message := broken.Error() + ": the janitor ignores this object"
	r.log.WarnContext(ctx, message, "reason", reason, "object", about.Name)
	return r.events.once(ctx, news{about, corev1.EventTypeWarning, reason, message})
}

// tell writes an event on the volume's claim or, if that no longer exists, on the volume.
func (r *janitorRound) tell(ctx context.Context, s sight, kind, reason, message string) error {
	r.log.InfoContext(ctx, message, "volume", s.pv.Name, "node", s.loss.node, "reason", reason)
	about := corev1.ObjectReference{APIVersion: "v1", Kind: kindVolume, Name: s.pv.Name, UID: s.pv.UID}
	if s.claim != nil {
		about = aboutClaim(s.claim.Namespace, s.claim.Name, s.claim.UID)
	}
	return r.events.tell(ctx, news{about, kind, reason, message})
}

// tellLost reports where the data is, what the owner can do, and when the janitor would act.
func (r *janitorRound) tellLost(ctx context.Context, s sight) (time.Duration, error) {
	what := fmt.Sprintf("%s. This claim's data is on it (logical volume %s). ", s.loss, s.pv.Spec.CSI.VolumeHandle)
	remedy := "The data is available again when it returns. If it does not return, delete this claim and its pod; a StatefulSet then starts with an empty volume on another node."
	switch {
	case s.claim == nil:
		return max(time.Second, s.marked.Add(s.grace).Sub(s.now)), nil // no owner is left to inform
	case !s.optIn:
		return tellAgain, r.tell(ctx, s, corev1.EventTypeWarning, reasonVolumeLost, what+"The janitor deletes nothing. "+remedy+
			fmt.Sprintf(" The janitor releases volumes of storage classes with the annotation %s: %s.", OnNodeLoss, onNodeLossRelease))
	}
	at := releaseAt(s.marked, s.began, s.grace)
	return max(time.Second, at.Sub(s.now)), r.tell(ctx, s, corev1.EventTypeWarning, reasonVolumeLost,
		what+fmt.Sprintf("If it does not return by %s, the janitor deletes this claim, as its storage class demands (annotation %s: %s). A StatefulSet then starts with an empty volume on another node.",
			at.UTC().Format(time.RFC3339), OnNodeLoss, onNodeLossRelease))
}

func (r *janitorRound) forgive(ctx context.Context, s sight) error {
	if s.pv.Annotations[annPolicy] != "" && s.pv.Spec.ClaimRef != nil && (s.claim == nil || s.claim.DeletionTimestamp != nil) {
		return r.forgiveLate(ctx, s)
	}
	if err := r.client.change(ctx, s.pv, map[string]any{annLostSince: nil, annPolicy: nil}, policyBefore(s.pv)); err != nil {
		return err
	}
	if s.claim == nil || s.pv.Status.Phase != corev1.VolumeBound || s.pv.Annotations[annGroupLost] != "" {
		return nil
	}
	return r.tell(ctx, s, corev1.EventTypeNormal, reasonVolumeLostResolved,
		"Resolved: the node of this claim's volume is back. The janitor deleted nothing")
}

// policyBefore is the reclaim policy that deleteClaim recorded before it set Retain; "": none. deleteClaim records only
// Delete: any other text comes from another writer.
func policyBefore(pv *corev1.PersistentVolume) corev1.PersistentVolumeReclaimPolicy {
	noted := corev1.PersistentVolumeReclaimPolicy(pv.Annotations[annPolicy])
	if noted == corev1.PersistentVolumeReclaimDelete && pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
		return noted
	}
	return ""
}

// forgiveLate retains a volume that is back although its claim is being deleted: nothing can stop that deletion.
func (r *janitorRound) forgiveLate(ctx context.Context, s sight) error {
	if err := r.client.annotate(ctx, s.pv, map[string]any{annLostSince: nil, annPolicy: nil, annAbandoned: s.now.UTC().Format(time.RFC3339)}); err != nil {
		return err
	}
	s.claim = nil // the claim is being deleted: write the event on the volume
	return r.tell(ctx, s, corev1.EventTypeNormal, reasonAbandonedVolume, fmt.Sprintf(
		"the node of this volume is back, but its claim was deleted meanwhile. Logical volume %s is kept with its data", s.pv.Spec.CSI.VolumeHandle))
}

// deleteClaim first sets the policy Retain: otherwise a node that returns while the claim is deleted would remove the data.
func (r *janitorRound) deleteClaim(ctx context.Context, s sight) error {
	if policy := s.pv.Spec.PersistentVolumeReclaimPolicy; policy == corev1.PersistentVolumeReclaimDelete {
		if err := r.client.change(ctx, s.pv, map[string]any{annPolicy: policy}, corev1.PersistentVolumeReclaimRetain); err != nil {
			return err
		}
	}
	err := remove(ctx, r.client.core, "persistentvolumeclaims", s.claim, nil)
	if err != nil {
		return fmt.Errorf("delete claim %s: %w", keyOf(s.claim), err)
	}
	return r.tell(ctx, s, corev1.EventTypeNormal, reasonReleasedClaim, fmt.Sprintf(
		"%s for more than %s: the janitor deletes this claim, as storage class %s demands, so that its owner can create it again; volume %s stays on its disks",
		s.loss, s.grace, s.pv.Spec.StorageClassName, s.pv.Spec.CSI.VolumeHandle))
}

// deletePods deletes the pods that wait for the claim. Pods on a lost node get no time to end, as Kubernetes' pod garbage
// collector does it.
func (r *janitorRound) deletePods(ctx context.Context, s sight) error {
	for _, pod := range s.users {
		if !s.removable(pod) {
			continue
		}
		var grace *int64
		if s.ownerless(pod) {
			grace = ptr.To(int64(0))
		}
		if err := remove(ctx, r.client.core, "pods", &pod, grace); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		if err := r.tell(ctx, s, corev1.EventTypeNormal, reasonReleasedPod, fmt.Sprintf("deleted pod %s, which waited for this claim", pod.Name)); err != nil {
			return err
		}
	}
	return nil
}

func (r *janitorRound) deletePV(ctx context.Context, s sight) error {
	if err := remove(ctx, r.client.core, "persistentvolumes", s.pv, nil); err != nil {
		return fmt.Errorf("delete PersistentVolume %s: %w", s.pv.Name, err)
	}
	return r.tell(ctx, s, corev1.EventTypeNormal, reasonReleasedVolume, fmt.Sprintf(
		"%s, and the claim of this volume is deleted: the janitor deletes this object; logical volume %s stays on its disks", s.loss, s.pv.Spec.CSI.VolumeHandle))
}

// unhold runs after the deletion: before it, csi-provisioners would set their finalizer again.
func (r *janitorRound) unhold(ctx context.Context, s sight) error {
	finalizers := slices.DeleteFunc(slices.Clone(s.pv.Finalizers), func(f string) bool { return f == finalizerProvisioner })
	body := map[string]any{"metadata": map[string]any{"resourceVersion": s.pv.ResourceVersion, "finalizers": finalizers}}
	if err := r.client.patch(ctx, "persistentvolumes", "", s.pv.Name, "", body, &corev1.PersistentVolume{}); unlessNotFound(err) != nil {
		return fmt.Errorf("remove the finalizer of PersistentVolume %s: %w", s.pv.Name, err)
	}
	r.log.InfoContext(ctx, "removed the finalizer that only the lost node removes", "volume", s.pv.Name, "node", s.loss.node)
	return nil
}

func (r *janitorRound) abandon(ctx context.Context, s sight) error {
	if err := r.client.annotate(ctx, s.pv, map[string]any{annAbandoned: s.now.UTC().Format(time.RFC3339)}); err != nil {
		return err
	}
	return r.tell(ctx, s, corev1.EventTypeNormal, reasonAbandonedVolume, fmt.Sprintf(
		"%s, and the janitor has deleted the claim of this volume. The reclaim policy is Retain: this object and its data (logical volume %s) are kept", s.loss, s.pv.Spec.CSI.VolumeHandle))
}
