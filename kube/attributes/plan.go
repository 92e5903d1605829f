package attributes

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
)

// step is what a bound claim needs.
type step int

const (
	nothing step = iota
	cancel       // The claim names no class any more, and no change is under way: drop the condition that says so.
	proceed      // Continue the change to the target that the status names.
	begin        // Change to the class that the claim names, if that class exists.
)

// Wanted reports whether Modify has something to do for a bound claim.
func Wanted(claim *corev1.PersistentVolumeClaim) bool {
	next, _ := planFor(claim, true)
	return next != nothing
}

// planFor returns the next step and the class that the volume shall have. uncertain: a change that is in progress may not have ended.
func planFor(claim *corev1.PersistentVolumeClaim, uncertain bool) (next step, target string) {
	asked, current, status := ptr.Deref(claim.Spec.VolumeAttributesClassName, ""), ptr.Deref(claim.Status.CurrentVolumeAttributesClassName, ""), claim.Status.ModifyVolumeStatus
	inProgress := status != nil && status.Status == corev1.PersistentVolumeClaimModifyVolumeInProgress
	switch {
	case claim.DeletionTimestamp != nil || claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName == "":
		return nothing, ""
	case status == nil && asked == current:
		return nothing, ""
	case asked == "" && !inProgress:
		if condition(claim, corev1.PersistentVolumeClaimVolumeModifyingVolume) == nil {
			return nothing, ""
		}
		return cancel, ""
	case inProgress && (uncertain || asked == ""):
		return proceed, status.TargetVolumeAttributesClassName
	}
	return begin, asked
}

func condition(claim *corev1.PersistentVolumeClaim, kind corev1.PersistentVolumeClaimConditionType) *corev1.PersistentVolumeClaimCondition {
	i := slices.IndexFunc(claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &claim.Status.Conditions[i]
}

// isIn reports whether the status has this state and target.
func isIn(claim *corev1.PersistentVolumeClaim, state corev1.PersistentVolumeClaimModifyVolumeStatus, target string) bool {
	status := claim.Status.ModifyVolumeStatus
	return status != nil && status.Status == state && status.TargetVolumeAttributesClassName == target
}

// pendingPatch records that the class that the claim names does not exist. The target of an earlier change stays, as do the conditions.
func pendingPatch() kubeclient.Patch {
	return kubeclient.Patch{Status: map[string]any{"modifyVolumeStatus": map[string]any{"status": corev1.PersistentVolumeClaimModifyVolumePending}}}
}

// begunPatch records that a change to the target has begun.
func begunPatch(claim *corev1.PersistentVolumeClaim, target string) kubeclient.Patch {
	return kubeclient.Patch{Status: map[string]any{
		"modifyVolumeStatus": statusOf(corev1.PersistentVolumeClaimModifyVolumeInProgress, target),
		"conditions":         merged(claim, modifying(fmt.Sprintf("the volume is being changed to the VolumeAttributesClass %q", target))),
	}}
}

// failedPatch records why a change failed.
func failedPatch(claim *corev1.PersistentVolumeClaim, target string, why error) kubeclient.Patch {
	state, progress := corev1.PersistentVolumeClaimModifyVolumeInProgress, fmt.Sprintf("the change of the volume to the VolumeAttributesClass %q may still be under way", target)
	if isFinal(why) {
		progress = fmt.Sprintf("the change of the volume to the VolumeAttributesClass %q has failed, and will be retried", target)
	}
	if isInfeasible(why) {
		state = corev1.PersistentVolumeClaimModifyVolumeInfeasible
	}
	failure := corev1.PersistentVolumeClaimCondition{Type: corev1.PersistentVolumeClaimVolumeModifyVolumeError, Status: corev1.ConditionTrue, Reason: reasonOf(why), Message: why.Error()}
	return kubeclient.Patch{Status: map[string]any{
		"modifyVolumeStatus": statusOf(state, target),
		"conditions":         merged(claim, modifying(progress), failure),
	}}
}

// saysFailed reports whether a failedPatch would change nothing.
func saysFailed(claim *corev1.PersistentVolumeClaim, target string, why error) bool {
	state := corev1.PersistentVolumeClaimModifyVolumeInProgress
	if isInfeasible(why) {
		state = corev1.PersistentVolumeClaimModifyVolumeInfeasible
	}
	failure := condition(claim, corev1.PersistentVolumeClaimVolumeModifyVolumeError)
	return isIn(claim, state, target) && failure != nil && failure.Message == why.Error()
}

// donePatch records that the volume has the target's limits.
func donePatch(claim *corev1.PersistentVolumeClaim, target string) kubeclient.Patch {
	return kubeclient.Patch{Status: map[string]any{
		"modifyVolumeStatus":               nil,
		"currentVolumeAttributesClassName": target,
		"conditions":                       without(claim, corev1.PersistentVolumeClaimVolumeModifyingVolume, corev1.PersistentVolumeClaimVolumeModifyVolumeError),
	}}
}

// cancelledPatch drops the condition of a change that the claim no longer asks for.
func cancelledPatch(claim *corev1.PersistentVolumeClaim) kubeclient.Patch {
	return kubeclient.Patch{Status: map[string]any{"conditions": without(claim, corev1.PersistentVolumeClaimVolumeModifyingVolume)}}
}

func statusOf(state corev1.PersistentVolumeClaimModifyVolumeStatus, target string) corev1.ModifyVolumeStatus {
	return corev1.ModifyVolumeStatus{Status: state, TargetVolumeAttributesClassName: target}
}

func modifying(message string) corev1.PersistentVolumeClaimCondition {
	return corev1.PersistentVolumeClaimCondition{Type: corev1.PersistentVolumeClaimVolumeModifyingVolume, Status: corev1.ConditionTrue, Message: message}
}

// merged returns the claim's conditions with these in place of those of the same types, which keep the time of their transition.
func merged(claim *corev1.PersistentVolumeClaim, changed ...corev1.PersistentVolumeClaimCondition) []corev1.PersistentVolumeClaimCondition {
	list := slices.Clone(claim.Status.Conditions)
	now := metav1.Now()
	for _, c := range changed {
		c.LastProbeTime, c.LastTransitionTime = now, now
		i := slices.IndexFunc(list, func(old corev1.PersistentVolumeClaimCondition) bool { return old.Type == c.Type })
		if i < 0 {
			list = append(list, c)
			continue
		}
		if list[i].Status == c.Status {
			c.LastTransitionTime = list[i].LastTransitionTime
		}
		list[i] = c
	}
	return list
}

// without returns the claim's conditions without those of these types. It is not nil: a patch with null would also remove the conditions of
// others that are added meanwhile.
func without(claim *corev1.PersistentVolumeClaim, kinds ...corev1.PersistentVolumeClaimConditionType) []corev1.PersistentVolumeClaimCondition {
	list := []corev1.PersistentVolumeClaimCondition{}
	for _, c := range claim.Status.Conditions {
		if !slices.Contains(kinds, c.Type) {
			list = append(list, c)
		}
	}
	return list
}

// isFinal reports whether a failed change has certainly ended (external-resizer's IsFinalError, for the kinds of errors that become those
// gRPC codes).
func isFinal(err error) bool {
	kind := lvm.KindOf(err)
	return kind != lvm.KindBusy && kind != lvm.KindInsufficientCapacity
}

// isInfeasible reports whether a change cannot succeed with this class on this node.
func isInfeasible(err error) bool { return lvm.KindOf(err) == lvm.KindInvalid }

// reasonOf returns the condition's reason: the gRPC code of the kind.
func reasonOf(err error) string {
	switch lvm.KindOf(err) {
	case lvm.KindInvalid:
		return "InvalidArgument"
	case lvm.KindOutOfRange:
		return "OutOfRange"
	case lvm.KindNotFound, lvm.KindNotLocal, lvm.KindNotManaged:
		return "NotFound"
	case lvm.KindBusy:
		return "Aborted"
	case lvm.KindExists, lvm.KindInUse, lvm.KindConflict:
		return "FailedPrecondition"
	case lvm.KindInsufficientCapacity:
		return "ResourceExhausted"
	case lvm.KindInternal:
	}
	return "Internal"
}
