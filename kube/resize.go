package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
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
	return begun && pending.BytesOf(&allocated) == pending.BytesOf(&target) &&
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

// external-resizer works for a whole cluster from one place, where it cannot reach an LV of another node; it has no mode
// for one node. So this node's process expands this node's volumes and records it in the same fields. It expands the volume
// before it updates the PersistentVolume and the claim, so that it refuses an impossible size early.

// mayResize reports, without a request, whether the volume of a bound claim may be on this node.
func (a *Agent) mayResize(ctx context.Context, claim *corev1.PersistentVolumeClaim) bool {
	if by := api.ProvisionerOf(claim.Annotations); by != "" && by != api.DriverName {
		return false
	}
	return a.mayHold(ctx, claim)
}

// resize expands the claim's volume to its next size. It writes nothing unless the volume is on this node.
func (a *Agent) resize(ctx context.Context, claim *corev1.PersistentVolumeClaim) (tried bool, err error) {
	target, ok := resizeTarget(claim)
	if !ok {
		return false, nil
	}
	pv, err := a.client.Volume(ctx, claim.Spec.VolumeName)
	if err != nil || pv == nil || kubeclient.Chain(pv, claim, a.node) != nil || pv.Annotations[api.AnnotationMoveRecord] != "" {
		return false, err // a volume that moves is extended afterwards
	}
	if err := a.checkHandle(ctx, pv); err != nil {
		return true, errors.Join(err, a.reportShared(ctx, claim, api.ReasonVolumeResizeFailed, "the volume is not extended", err))
	}
	switch err := a.extend(ctx, claim, pv, target); {
	case apierrors.IsNotFound(err):
		return true, nil // deleted meanwhile
	case apierrors.IsForbidden(err):
		return true, errors.Join(err, a.reportForbidden(ctx, claim, api.ReasonVolumeResizeFailed, err))
	default:
		return true, err
	}
}

// reportForbidden writes an event on a claim whose selected node is another one although its volume was created for it: the
// admission policy then takes its volume for that node's.
func (a *Agent) reportForbidden(ctx context.Context, claim *corev1.PersistentVolumeClaim, reason string, why error) error {
	selected := claim.Annotations[api.AnnotationSelectedNode]
	if selected == "" || selected == a.node {
		return nil
	}
	return a.events.Record(ctx, kubeclient.Event{About: kubeclient.AboutClaim(claim.Namespace, claim.Name, claim.UID), Kind: corev1.EventTypeWarning,
		Reason: reason, Message: fmt.Sprintf("the volume of this claim is on node %s, but the claim's annotation %s names %s, "+
			"so the API server does not let node %s record a change of its size or attributes. Remove the annotation: kubectl -n %s annotate pvc %s %s-. The API server says: %s",
			a.node, api.AnnotationSelectedNode, kubeclient.Quoted(selected), a.node, claim.Namespace, claim.Name, api.AnnotationSelectedNode, why)})
}

// reportShared writes an event on a claim if the driver refuses an operation because two PersistentVolumes have one handle.
// It ignores other errors.
func (a *Agent) reportShared(ctx context.Context, claim *corev1.PersistentVolumeClaim, reason, refused string, why error) error {
	var shared sharedHandleError
	if !errors.As(why, &shared) {
		return nil
	}
	return a.events.Record(ctx, kubeclient.Event{About: kubeclient.AboutClaim(claim.Namespace, claim.Name, claim.UID), Kind: corev1.EventTypeWarning, Reason: reason, Message: refused + ": " + shared.Error()})
}

func (a *Agent) extend(ctx context.Context, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, target resource.Quantity) error {
	if !isMarked(claim, target) {
		begun, err := a.client.PatchClaim(ctx, claim, "status", begunPatch(claim, target))
		if err != nil {
			return fmt.Errorf("cannot record the expansion of claim %s: %w", kubeclient.KeyOf(claim), err)
		}
		claim = begun
	}
	volume, err := a.extendVolume(ctx, pv, target)
	if err != nil {
		return errors.Join(err, a.reportFailed(ctx, claim, err))
	}
	size := *resource.NewQuantity(int64(volume.Size), resource.BinarySI)
	if pending.BytesOf(pv.Spec.Capacity.Storage()) < volume.Size {
		body := map[string]any{"spec": map[string]any{"capacity": storage(size)}}
		if err := a.client.Patch(ctx, "persistentvolumes", "", pv.Name, "", body, &corev1.PersistentVolume{}); err != nil {
			return fmt.Errorf("cannot set the new size of PersistentVolume %s: %w", pv.Name, err)
		}
	}
	isDone := isBlock(pv) && volume.Class.Encryption == lvm.EncryptionNone // the kubelet has the mapping of an encrypted one resized
	if _, err := a.client.PatchClaim(ctx, claim, "status", grownPatch(claim, size, isDone)); err != nil {
		return fmt.Errorf("cannot record the new size of claim %s: %w", kubeclient.KeyOf(claim), err)
	}
	a.log.InfoContext(ctx, "volume extended", "claim", kubeclient.KeyOf(claim), "volume", volume.ID.String(), "size", volume.Size)
	n := kubeclient.Event{About: kubeclient.AboutClaim(claim.Namespace, claim.Name, claim.UID), Kind: corev1.EventTypeNormal, Reason: api.ReasonFileSystemResizeRequired,
		Message: fmt.Sprintf("the volume on node %s now has %s; file system resize pending", a.node, volume.Size)}
	if isDone {
		n.Reason, n.Message = api.ReasonVolumeResizeSuccessful, fmt.Sprintf("the volume on node %s now has %s", a.node, volume.Size)
	}
	return a.events.Record(ctx, n)
}

func (a *Agent) extendVolume(ctx context.Context, pv *corev1.PersistentVolume, target resource.Quantity) (lvm.Volume, error) {
	id, err := lvm.ParseID(pv.Spec.CSI.VolumeHandle)
	if err != nil {
		return lvm.Volume{}, err
	}
	if isBlock(pv) {
		return a.volumes.ExtendBlock(ctx, id, pending.BytesOf(&target), 0)
	}
	return a.volumes.Extend(ctx, id, pending.BytesOf(&target), 0)
}

func isBlock(pv *corev1.PersistentVolume) bool {
	return pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock
}

// reportFailed records in the claim's status and in an event why its volume was not extended. It does not report a busy
// volume.
func (a *Agent) reportFailed(ctx context.Context, claim *corev1.PersistentVolumeClaim, why error) error {
	infeasible := false
	switch lvm.KindOf(why) {
	case lvm.KindBusy:
		return nil
	case lvm.KindOutOfRange, lvm.KindInvalid, lvm.KindNotFound:
		infeasible = true
	case lvm.KindInternal, lvm.KindExists, lvm.KindInUse, lvm.KindInsufficientCapacity, lvm.KindNotLocal, lvm.KindNotManaged, lvm.KindConflict:
	}
	var noted error
	if !saysFailed(claim, infeasible, why.Error()) {
		_, noted = a.client.PatchClaim(ctx, claim, "status", failedPatch(claim, infeasible, why.Error()))
	}
	return errors.Join(noted, a.events.Record(ctx, kubeclient.Event{About: kubeclient.AboutClaim(claim.Namespace, claim.Name, claim.UID),
		Kind: corev1.EventTypeWarning, Reason: api.ReasonVolumeResizeFailed, Message: why.Error()}))
}
