package kube

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// This file decides; resizer.go acts. How an expansion is recorded in a claim's status, so that every part of Kubernetes
// and every version of it can take up what another began, is laid down in KEP-1790, "Recovery from volume expansion
// failure": allocatedResources is the size that is worked towards (and that the quota counts), allocatedResourceStatuses
// how far it has come.

// annNoNodeExpansion tells the kubelet that it has nothing to do after an expansion.
const annNoNodeExpansion = "volume.kubernetes.io/node-expansion-not-required"

// resizeTarget is the size that a bound claim's volume is to have next; ok is false while it is the kubelet's turn.
func resizeTarget(claim *corev1.PersistentVolumeClaim) (target resource.Quantity, ok bool) {
	asked := *claim.Spec.Resources.Requests.Storage()
	allocated, begun := claim.Status.AllocatedResources[corev1.ResourceStorage]
	switch resizeState(claim) {
	case corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInProgress:
		return resource.Quantity{}, false // what is asked for beyond that comes after it
	case corev1.PersistentVolumeClaimNodeResizeInfeasible:
		if begun {
			return allocated, true // the volume has that size: the kubelet may try again
		}
	case corev1.PersistentVolumeClaimControllerResizeInProgress:
		if begun && !hasFailed(claim) {
			return allocated, true // an earlier run was cut off: whether it came that far is not known
		}
	case corev1.PersistentVolumeClaimControllerResizeInfeasible: // nothing was changed, and something else may be asked for
	}
	return asked, true
}

func resizeState(claim *corev1.PersistentVolumeClaim) corev1.ClaimResourceStatus {
	return claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
}

// hasFailed tells whether the last attempt is known to have ended, without success.
func hasFailed(claim *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == corev1.PersistentVolumeClaimControllerResizeError && c.Status == corev1.ConditionTrue
	})
}

// isMarked tells whether the status says already that this size is worked towards here.
func isMarked(claim *corev1.PersistentVolumeClaim, target resource.Quantity) bool {
	allocated, begun := claim.Status.AllocatedResources[corev1.ResourceStorage]
	state := resizeState(claim)
	return begun && allocated.Cmp(target) == 0 &&
		(state == corev1.PersistentVolumeClaimControllerResizeInProgress || state == corev1.PersistentVolumeClaimControllerResizeInfeasible)
}

// begunPatch says that the volume is being brought to that size.
func begunPatch(claim *corev1.PersistentVolumeClaim, target resource.Quantity) patch {
	p := patch{status: map[string]any{
		"allocatedResources":        storage(target),
		"allocatedResourceStatuses": storage(corev1.PersistentVolumeClaimControllerResizeInProgress),
		"conditions":                conditions(claim, corev1.PersistentVolumeClaimResizing, ""),
	}}
	if _, set := claim.Annotations[annNoNodeExpansion]; set {
		p.annotations = map[string]any{annNoNodeExpansion: nil}
	}
	return p
}

// failedPatch says why the size could not be had. Infeasible is the one state in which a user may ask for less again.
func failedPatch(claim *corev1.PersistentVolumeClaim, infeasible bool, why string) patch {
	p := patch{status: map[string]any{"conditions": conditions(claim, corev1.PersistentVolumeClaimControllerResizeError, why)}}
	if infeasible {
		p.status["allocatedResourceStatuses"] = storage(corev1.PersistentVolumeClaimControllerResizeInfeasible)
	}
	return p
}

// saysFailed tells whether a failedPatch would change nothing.
func saysFailed(claim *corev1.PersistentVolumeClaim, infeasible bool, why string) bool {
	return infeasible == (resizeState(claim) == corev1.PersistentVolumeClaimControllerResizeInfeasible) &&
		slices.ContainsFunc(claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
			return c.Type == corev1.PersistentVolumeClaimControllerResizeError && c.Message == why
		})
}

// grownPatch says that the volume has its size, and hands over to the kubelet if there is a file system to grow.
func grownPatch(claim *corev1.PersistentVolumeClaim, size resource.Quantity, isBlock bool) patch {
	if isBlock {
		return patch{
			annotations: map[string]any{annNoNodeExpansion: "true"},
			status: map[string]any{
				"capacity":                  storage(size),
				"allocatedResourceStatuses": storage(nil),
				"conditions":                conditions(claim, "", ""),
			},
		}
	}
	return patch{status: map[string]any{
		"allocatedResourceStatuses": storage(corev1.PersistentVolumeClaimNodeResizePending),
		"conditions": conditions(claim, corev1.PersistentVolumeClaimFileSystemResizePending,
			"The volume has its new size. The file system is resized now if a pod has it mounted, otherwise when the next pod starts."),
	}}
}

func storage(value any) map[corev1.ResourceName]any {
	return map[corev1.ResourceName]any{corev1.ResourceStorage: value}
}

var resizeConditions = []corev1.PersistentVolumeClaimConditionType{
	corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
	corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError,
}

// conditions are the claim's conditions with the one given, if any, in place of all that speak of resizing.
func conditions(claim *corev1.PersistentVolumeClaim, only corev1.PersistentVolumeClaimConditionType, message string) []corev1.PersistentVolumeClaimCondition {
	list := []corev1.PersistentVolumeClaimCondition{} // not nil: a patch with null would remove others' too
	for _, c := range claim.Status.Conditions {
		if !slices.Contains(resizeConditions, c.Type) {
			list = append(list, c)
		}
	}
	if only != "" {
		list = append(list, corev1.PersistentVolumeClaimCondition{
			Type: only, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(), Message: message,
		})
	}
	return list
}
