package kube

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
)

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
	if pv.Spec.Capacity.Storage().Cmp(size) < 0 {
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
		return a.volumes.ExtendBlock(ctx, id, lvm.Bytes(target.Value()), 0)
	}
	return a.volumes.Extend(ctx, id, lvm.Bytes(target.Value()), 0)
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
