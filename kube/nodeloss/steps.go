package nodeloss

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/cluster"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/pending"
)

// Intervals of further checks for changes that no watch announces: a class gets its annotation, an event expires after an
// hour, a deleted pod ends.
const (
	reportAgain = 10 * time.Minute
	checkAgain  = 5 * time.Second
)

// checkVolume does the next step for a volume. It sends no request for a volume that is not lost.
func (r *round) checkVolume(ctx context.Context, name, node string) (time.Duration, error) {
	pv, err := r.Client.Volume(ctx, name)
	if err != nil || pv == nil || pending.NodeOf(pv) != node {
		return 0, err
	}
	s, err := r.observe(ctx, pv, node)
	if err != nil {
		return 0, err
	}
	again, err := r.do(ctx, s, decide(s))
	if again == 0 && s.Loss.kind == lossNone && pv.Annotations[api.AnnotationVolumeGroupLostSince] != "" {
		again = time.Minute // the node does not answer, and no watch announces that it answers again
	}
	return again, err
}

// observe reads what decides the next step, and stops as soon as the rest cannot matter.
func (r *round) observe(ctx context.Context, pv *corev1.PersistentVolume, name string) (observation, error) {
	s := observation{Now: time.Now(), Grace: r.Grace, Pv: pv}
	err := r.observeLoss(ctx, &s, name)
	if err != nil || s.broken != nil || s.Loss.kind == lossNone && s.Marked.IsZero() && pv.Annotations[api.AnnotationReclaimPolicy] == "" {
		return s, err
	}
	if s.Claim, s.broken, err = r.boundTo(ctx, pv, name); err != nil || s.broken != nil || s.Loss.kind == lossNone {
		return s, err
	}
	if s.OptIn, err = r.releases(ctx, pv, s.Claim); err != nil || s.Claim == nil || !s.due() || !s.OptIn {
		return s, err
	}
	s.users, err = r.pods(ctx, s.Claim.Namespace, func(pod *corev1.Pod) bool { return uses(pod, s.Claim) })
	return s, err
}

// observeLoss determines whether the volume is lost, and since when. broken: the controller does not believe its node.
func (r *round) observeLoss(ctx context.Context, s *observation, name string) error {
	node, err := r.Client.Node(ctx, name)
	if err != nil {
		return err
	}
	s.Loss = lossOf(name, node, s.Pv.Annotations[api.AnnotationVolumeGroupLostSince])
	vg, _, _ := strings.Cut(s.Pv.Spec.CSI.VolumeHandle, "/")
	if s.Loss.kind == lossNone {
		r.Losses.end(groupLossKey(name, vg))
	} else if s.lost, s.broken = r.lostSince(s.Loss, vg, s.Now); s.broken != nil {
		return nil //nolint:nilerr // a part of the observation
	}
	s.Watched = r.watched(s.Loss, vg, s.Now)
	s.Marked = r.markedAt(ctx, s.Now, s.Loss, s.lost, s.Pv)
	return nil
}

// boundTo reads the claim that a volume is bound to; nil: the volume was never bound, or that claim no longer exists.
// broken: the volume names an existing claim, but they do not belong together.
func (r *round) boundTo(ctx context.Context, pv *corev1.PersistentVolume, node string) (claim *corev1.PersistentVolumeClaim, broken, err error) {
	sameHandle := r.volumesWith(pv.Spec.CSI.VolumeHandle)
	if broken := kubeclient.Placed(pv, node, sameHandle...); broken != nil {
		return nil, broken, nil
	}
	ref := pv.Spec.ClaimRef
	if ref == nil || ref.UID == "" {
		return nil, nil, nil
	}
	claim, err = r.Client.Claim(ctx, ref.Namespace, ref.Name)
	if err != nil || claim == nil || claim.UID != ref.UID {
		return nil, nil, err
	}
	if broken := kubeclient.Chain(pv, claim, node, sameHandle...); broken != nil {
		return nil, broken, nil
	}
	return claim, nil, nil
}

// volumesWith returns the names of the volumes with a handle.
func (r *round) volumesWith(handle string) (names []string) {
	for v := range r.Volumes.Each {
		if v.Node != "" && v.Handle == handle {
			names = append(names, v.Name)
		}
	}
	slices.Sort(names)
	return names
}

// releases reports whether the storage class of a volume says release. The claim must have the same class.
func (r *round) releases(ctx context.Context, pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) (bool, error) {
	name := pv.Spec.StorageClassName
	if claim != nil && kubeclient.ClassOf(claim) != name {
		return false, nil
	}
	class, err := r.Client.Class(ctx, name)
	return class != nil && api.ReleasesOnNodeLoss(class.Provisioner, class.Annotations), err
}

// do does the step; the watch, or the returned time, brings the next one.
func (r *round) do(ctx context.Context, s observation, what step) (time.Duration, error) {
	switch what {
	case stepNothing:
		return 0, nil
	case stepClearLoss:
		return r.restoreVolume(ctx, s)
	case stepMark:
		s.Marked = noteAt(s.Now, s.Pv.CreationTimestamp.Time, s.lost)
		if err := r.Client.Annotate(ctx, s.Pv, map[string]any{api.AnnotationLostSince: s.Marked.Format(time.RFC3339)}); err != nil {
			return 0, err
		}
		return r.reportLost(ctx, s) // at once: the owner must see a warning before the claim is deleted
	case stepReport:
		return r.reportLost(ctx, s)
	case stepInUse:
		user := s.users[slices.IndexFunc(s.users, s.alive)]
		return time.Minute, r.report(ctx, s, corev1.EventTypeWarning, api.ReasonVolumeInUse, fmt.Sprintf(
			"%s, and the storage class demands that this claim is deleted; but pod %s on node %s still uses it: delete the pod first",
			s.Loss, user.Name, user.Spec.NodeName))
	case stepDeleteClaim, stepDeletePods:
		return r.release(ctx, s)
	case stepAwait:
		return checkAgain, nil
	case stepDeletePV:
		if err := r.dismissPods(ctx, s); err != nil {
			return 0, err
		}
		return 0, r.deletePV(ctx, s)
	case stepRemoveFinalizer:
		return 0, r.removeFinalizer(ctx, s)
	case stepAbandon:
		if err := r.dismissPods(ctx, s); err != nil {
			return 0, err
		}
		return 0, r.abandon(ctx, s)
	case stepReportBroken:
		return reportAgain, r.reportBroken(ctx, api.ReasonClaimMismatch, corev1.ObjectReference{
			APIVersion: "v1", Kind: kubeclient.KindVolume, Name: s.Pv.Name, UID: s.Pv.UID}, s.broken)
	}
	return 0, nil
}

// reportBroken writes an event on the object whose references do not agree, and on no other object.
func (r *round) reportBroken(ctx context.Context, reason string, about corev1.ObjectReference, broken error) error {
	message := broken.Error() + ": nodelvm-controller ignores this object"
	r.Log.WarnContext(ctx, message, "reason", reason, "object", about.Name)
	return r.Events.RecordOnce(ctx, kubeclient.Event{About: about, Kind: corev1.EventTypeWarning, Reason: reason, Message: message})
}

// report writes an event on the volume's claim or, if that no longer exists, on the volume.
func (r *round) report(ctx context.Context, s observation, kind, reason, message string) error {
	r.Log.InfoContext(ctx, message, "volume", s.Pv.Name, "node", s.Loss.node, "reason", reason)
	about := corev1.ObjectReference{APIVersion: "v1", Kind: kubeclient.KindVolume, Name: s.Pv.Name, UID: s.Pv.UID}
	if s.Claim != nil {
		about = kubeclient.AboutClaim(s.Claim.Namespace, s.Claim.Name, s.Claim.UID)
	}
	return r.Events.Record(ctx, kubeclient.Event{About: about, Kind: kind, Reason: reason, Message: message})
}

// reportLost reports where the data is, what the owner can do, and when the controller would act.
func (r *round) reportLost(ctx context.Context, s observation) (time.Duration, error) {
	switch {
	case s.Claim == nil:
		return max(time.Second, s.Marked.Add(s.Grace).Sub(s.Now)), nil // no owner is left to inform
	case s.remedyOfMove() != "":
		return reportAgain, r.report(ctx, s, corev1.EventTypeWarning, api.ReasonVolumeLost, s.Loss.String()+", and this claim's volume was moving to another node. "+s.remedyOfMove())
	case !s.OptIn:
		return reportAgain, r.report(ctx, s, corev1.EventTypeWarning, api.ReasonVolumeLost, s.lostText())
	}
	at := s.releaseAt()
	return max(time.Second, at.Sub(s.Now)), r.report(ctx, s, corev1.EventTypeWarning, api.ReasonVolumeLost, s.lostText())
}

// lostText says where the data is, and what becomes of the claim. The node of a lost group works, and may get the new volume.
func (s observation) lostText() string {
	empty := "empty"
	if s.Loss.kind != lossGroup {
		empty = "empty, on another node"
	}
	what := fmt.Sprintf("%s. This claim's data is on it (logical volume %s). ", s.Loss, s.Pv.Spec.CSI.VolumeHandle)
	if !s.OptIn {
		return what + fmt.Sprintf("nodelvm deletes nothing. The data returns with %s. If it does not return, delete this claim, the other lost claims of its pod, and the pod; a StatefulSet or an operator then creates them again, %s. "+
			"nodelvm-controller releases volumes of storage classes with the annotation %s: %s.", s.Loss.subject(), empty, api.AnnotationOnNodeLoss, api.OnNodeLossRelease)
	}
	return what + fmt.Sprintf("If it does not return by %s, nodelvm-controller deletes this claim, as its storage class demands (annotation %s: %s). Its StatefulSet or its operator then creates it again, %s.",
		s.releaseAt().UTC().Format(time.RFC3339), api.AnnotationOnNodeLoss, api.OnNodeLossRelease, empty)
}

// restoreVolume undoes what the controller has done to a volume that is back. checkReturned reports it. If the controller has deleted the claim, a pod
// may still wait for that, or appear a moment later. An admin may have made the volume available to other claims: it stays as they see it.
func (r *round) restoreVolume(ctx context.Context, s observation) (time.Duration, error) {
	cleared, ref := map[string]any{api.AnnotationLostSince: nil, api.AnnotationReclaimPolicy: nil}, s.Pv.Spec.ClaimRef
	if ref != nil && hasReleased(s.Pv) && (s.Claim == nil || s.Claim.DeletionTimestamp != nil) {
		if s.Now.Before(goneAt(s).Add(podsAppear)) {
			return checkAgain, nil
		}
		if err := r.dismissPods(ctx, s); err != nil {
			return 0, err
		}
		if ref.UID != "" {
			return 0, r.retainReturned(ctx, s)
		}
	}
	if s.Claim == nil {
		return 0, r.Client.Annotate(ctx, s.Pv, cleared)
	}
	return 0, r.Client.Change(ctx, s.Pv, cleared, policyBefore(s.Pv))
}

// hasReleased reports whether the controller has deleted the claim of a volume, or was about to.
func hasReleased(pv *corev1.PersistentVolume) bool {
	return pv.Annotations[api.AnnotationReclaimPolicy] != ""
}

// goneAt is when the claim of a volume was deleted, as far as that is recorded.
func goneAt(s observation) time.Time {
	switch {
	case s.Claim != nil:
		return s.Claim.DeletionTimestamp.Time
	case kubeclient.IsReleased(s.Pv), s.Pv.Status.Phase == corev1.VolumeAvailable: // an admin made it available later
		return releasedAt(s.Pv)
	default:
		return s.Now // the volume controller has yet to see it
	}
}

// checkReturned reports on the claim that a volume is back. The volume's annotations of a loss were removed, by restoreVolume or by the
// driver on its node.
func (r *round) checkReturned(ctx context.Context, name, nodeName string) (time.Duration, error) {
	pv, err := r.Client.Volume(ctx, name)
	if err != nil || pv == nil || pending.NodeOf(pv) != nodeName || pv.Status.Phase != corev1.VolumeBound || len(kubeclient.Only(pv.Annotations, cluster.LossNotes...)) > 0 {
		return 0, err
	}
	node, err := r.Client.Node(ctx, nodeName)
	if err != nil || lossOf(nodeName, node, "").kind != lossNone {
		return 0, err
	}
	claim, broken, err := r.boundTo(ctx, pv, nodeName)
	if err != nil || broken != nil || claim == nil || claim.DeletionTimestamp != nil {
		return 0, err
	}
	return 0, r.report(ctx, observation{Pv: pv, Claim: claim, Loss: loss{node: nodeName}}, corev1.EventTypeNormal, api.ReasonVolumeLostResolved,
		"Resolved: the node or volume group of this claim's volume is back. nodelvm-controller deleted nothing")
}

// policyBefore is the reclaim policy that deleteClaim recorded before it set Retain; "": none. A recorded Retain is in force, and
// any text but these two comes from another writer.
func policyBefore(pv *corev1.PersistentVolume) corev1.PersistentVolumeReclaimPolicy {
	noted := corev1.PersistentVolumeReclaimPolicy(pv.Annotations[api.AnnotationReclaimPolicy])
	if noted == corev1.PersistentVolumeReclaimDelete && pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
		return noted
	}
	return ""
}

// retainReturned retains a volume that is back although its claim is being deleted: nothing can stop that deletion.
func (r *round) retainReturned(ctx context.Context, s observation) error {
	if err := r.Client.Annotate(ctx, s.Pv, map[string]any{api.AnnotationLostSince: nil, api.AnnotationReclaimPolicy: nil, api.AnnotationAbandonedSince: s.Now.UTC().Format(time.RFC3339)}); err != nil {
		return err
	}
	s.Claim = nil // the claim is being deleted: write the event on the volume
	return r.report(ctx, s, corev1.EventTypeNormal, api.ReasonVolumeAbandoned, fmt.Sprintf(
		"the node or volume group of this volume is back, but its claim was deleted meanwhile. Logical volume %s is kept with its data", s.Pv.Spec.CSI.VolumeHandle))
}

// deleteClaim first sets the policy Retain: otherwise a node that returns while the claim is deleted would remove the data. It records the policy
// before, also Retain: the record tells a restarted controller that this one deleted the claim. A Delete recorded before stays.
func (r *round) deleteClaim(ctx context.Context, s observation) error {
	if policy := s.Pv.Spec.PersistentVolumeReclaimPolicy; policy == corev1.PersistentVolumeReclaimDelete || !hasReleased(s.Pv) {
		if err := r.Client.Change(ctx, s.Pv, map[string]any{api.AnnotationReclaimPolicy: policy}, corev1.PersistentVolumeReclaimRetain); err != nil {
			return err
		}
	}
	err := remove(ctx, r.Client.Core, "persistentvolumeclaims", s.Claim, nil)
	if err != nil {
		return fmt.Errorf("cannot delete claim %s: %w", kubeclient.KeyOf(s.Claim), err)
	}
	return r.report(ctx, s, corev1.EventTypeNormal, api.ReasonClaimDeleted, fmt.Sprintf(
		"%s for more than %s: nodelvm-controller deletes this claim, as storage class %s demands, so that its owner can create it again; volume %s stays on its disks",
		s.Loss, s.Grace, s.Pv.Spec.StorageClassName, s.Pv.Spec.CSI.VolumeHandle))
}

func (r *round) deletePV(ctx context.Context, s observation) error {
	if err := remove(ctx, r.Client.Core, "persistentvolumes", s.Pv, nil); err != nil {
		return fmt.Errorf("cannot delete PersistentVolume %s: %w", s.Pv.Name, err)
	}
	return r.report(ctx, s, corev1.EventTypeNormal, api.ReasonPersistentVolumeDeleted, fmt.Sprintf(
		"%s, and the claim of this volume is deleted: nodelvm-controller deletes this object; logical volume %s stays on its disks", s.Loss, s.Pv.Spec.CSI.VolumeHandle))
}

// removeFinalizer runs after the deletion: before it, csi-provisioners would set their finalizer again.
func (r *round) removeFinalizer(ctx context.Context, s observation) error {
	finalizers := slices.DeleteFunc(slices.Clone(s.Pv.Finalizers), func(f string) bool { return f == api.FinalizerProvisioner })
	body := map[string]any{"metadata": map[string]any{"resourceVersion": s.Pv.ResourceVersion, "finalizers": finalizers}}
	if err := r.Client.Patch(ctx, "persistentvolumes", "", s.Pv.Name, "", body, &corev1.PersistentVolume{}); kubeclient.UnlessNotFound(err) != nil {
		return fmt.Errorf("remove the finalizer of PersistentVolume %s: %w", s.Pv.Name, err)
	}
	r.Log.InfoContext(ctx, "removed the finalizer that the lost node would have removed", "volume", s.Pv.Name, "node", s.Loss.node)
	return nil
}

func (r *round) abandon(ctx context.Context, s observation) error {
	if err := r.Client.Annotate(ctx, s.Pv, map[string]any{api.AnnotationReclaimPolicy: nil, api.AnnotationAbandonedSince: s.Now.UTC().Format(time.RFC3339)}); err != nil {
		return err
	}
	return r.report(ctx, s, corev1.EventTypeNormal, api.ReasonVolumeAbandoned, fmt.Sprintf(
		"%s, and nodelvm-controller has deleted the claim of this volume. The reclaim policy is Retain: this object and its data (logical volume %s) are kept", s.Loss, s.Pv.Spec.CSI.VolumeHandle))
}
