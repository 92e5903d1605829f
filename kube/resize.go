package kube

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// This file decides; resizer.go acts. KEP-1790, "Recovery from volume expansion failure", defines how a claim's status
// records an expansion, so that every component and version of Kubernetes can continue it. allocatedResources is the size
// to reach (which the quota counts), allocatedResourceStatuses the progress.

// resizeTarget returns the next size of a bound claim's volume; ok is false during the kubelet's part.
func resizeTarget(claim *corev1.PersistentVolumeClaim) (target resource.Quantity, ok bool) {
	asked := *claim.Spec.Resources.Requests.Storage()
	allocated, begun := claim.Status.AllocatedResources[corev1.ResourceStorage]
	switch resizeState(claim) {
	case corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInProgress:
		return resource.Quantity{}, false // a still larger request waits until the kubelet is done
	case corev1.PersistentVolumeClaimNodeResizeInfeasible:
		if begun {
			return allocated, true // the volume has that size: the kubelet may retry
		}
	case corev1.PersistentVolumeClaimControllerResizeInProgress:
		if begun && !hasFailed(claim) {
			return allocated, true // an earlier run was interrupted, perhaps before it reached that size
		}
	case corev1.PersistentVolumeClaimControllerResizeInfeasible: // nothing has changed, and the request may have another size
	}
	return asked, true
}

func resizeState(claim *corev1.PersistentVolumeClaim) corev1.ClaimResourceStatus {
	return claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
}

// hasFailed reports whether the last attempt has ended without success.
func hasFailed(claim *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == corev1.PersistentVolumeClaimControllerResizeError && c.Status == corev1.ConditionTrue
	})
}

// isMarked reports whether the status already records an expansion to this size.
func isMarked(claim *corev1.PersistentVolumeClaim, target resource.Quantity) bool {
	allocated, begun := claim.Status.AllocatedResources[corev1.ResourceStorage]
	state := resizeState(claim)
	return begun && allocated.Cmp(target) == 0 &&
		(state == corev1.PersistentVolumeClaimControllerResizeInProgress || state == corev1.PersistentVolumeClaimControllerResizeInfeasible)
}

// begunPatch records that an expansion to that size has begun.
func begunPatch(claim *corev1.PersistentVolumeClaim, target resource.Quantity) kubeclient.Patch {
	p := kubeclient.Patch{Status: map[string]any{
		"allocatedResources":        storage(target),
		"allocatedResourceStatuses": storage(corev1.PersistentVolumeClaimControllerResizeInProgress),
		"conditions":                conditions(claim, corev1.PersistentVolumeClaimResizing, ""),
	}}
	if _, set := claim.Annotations[api.AnnotationNoNodeExpansion]; set {
		p.Annotations = map[string]any{api.AnnotationNoNodeExpansion: nil}
	}
	return p
}

// failedPatch records why the expansion failed. Infeasible is the only state in which a user may request less again.
func failedPatch(claim *corev1.PersistentVolumeClaim, infeasible bool, why string) kubeclient.Patch {
	p := kubeclient.Patch{Status: map[string]any{"conditions": conditions(claim, corev1.PersistentVolumeClaimControllerResizeError, why)}}
	if infeasible {
		p.Status["allocatedResourceStatuses"] = storage(corev1.PersistentVolumeClaimControllerResizeInfeasible)
	}
	return p
}

// saysFailed reports whether a failedPatch would change nothing.
func saysFailed(claim *corev1.PersistentVolumeClaim, infeasible bool, why string) bool {
	return infeasible == (resizeState(claim) == corev1.PersistentVolumeClaimControllerResizeInfeasible) &&
		slices.ContainsFunc(claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
			return c.Type == corev1.PersistentVolumeClaimControllerResizeError && c.Message == why
		})
}

// grownPatch records the volume's new size, and leaves the file system or the mapping, if any (isDone is false), to the kubelet.
func grownPatch(claim *corev1.PersistentVolumeClaim, size resource.Quantity, isDone bool) kubeclient.Patch {
	if isDone {
		return kubeclient.Patch{
			Annotations: map[string]any{api.AnnotationNoNodeExpansion: "true"},
			Status: map[string]any{
				"capacity":                  storage(size),
				"allocatedResourceStatuses": storage(nil),
				"conditions":                conditions(claim, "", ""),
			},
		}
	}
	return kubeclient.Patch{Status: map[string]any{
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

// conditions returns the claim's conditions with the given one, if any, in place of all that concern resizing.
func conditions(claim *corev1.PersistentVolumeClaim, only corev1.PersistentVolumeClaimConditionType, message string) []corev1.PersistentVolumeClaimCondition {
	list := []corev1.PersistentVolumeClaimCondition{} // not nil: a patch with null would also remove the conditions of others
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
