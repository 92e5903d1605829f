package apiproxy

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
)

// restoreFinalizer is csi-provisioner's, of this driver's or another's, of a VolumeSnapshot from which a restore is being created.
const restoreFinalizer = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"

// claimConcerns reports whether csi-provisioner on the node may have to handle the claim. Claims without a volume concern every
// node: the scheduler may select any node next, and their data sources stay protected meanwhile. csi-provisioner removes its
// finalizers from all sources that no claim waits for, so the copies of other drivers concern it too. A bound claim concerns the node
// of its volume, which reads it to clone it. It concerns every node while it has the finalizer of the source of a clone: a clone may be on another
// node (kube/copyoffer.go).
func claimConcerns(claim *corev1.PersistentVolumeClaim, node string, volumeHere bool) bool {
	if claim.Spec.VolumeName == "" {
		by := api.ProvisionerOf(claim.Annotations)
		return by == "" || by == api.DriverName || claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil
	}
	return volumeHere || claim.Annotations[api.AnnotationSelectedNode] == node || slices.Contains(claim.Finalizers, api.FinalizerCloned)
}

// snapshotConcerns reports whether csi-provisioner needs the VolumeSnapshot in its cache. There it searches only for its finalizer,
// which the csi-provisioner of any node removes if no claim waits for the snapshot. It reads a snapshot that it restores from the
// API server.
func snapshotConcerns(snapshot metav1.Object) bool {
	return slices.Contains(snapshot.GetFinalizers(), restoreFinalizer)
}

// volumeConcerns reports whether csi-provisioner on the node may have to handle the PersistentVolume.
func volumeConcerns(pv *corev1.PersistentVolume, node string) bool {
	if !isOurs(pv) {
		return false
	}
	switch pv.Status.Phase {
	case corev1.VolumeBound, corev1.VolumeReleased, corev1.VolumeFailed:
		return mayBeOn(pv, node) || finalizerIsDue(pv)
	default: // every csi-provisioner skips a claim whose PersistentVolume exists
		return true
	}
}

func isOurs(pv *corev1.PersistentVolume) bool {
	return pv.Spec.CSI != nil && pv.Spec.CSI.Driver == api.DriverName
}

// finalizerIsDue reports whether csi-provisioner adds or removes its finalizer. Any node's does, because the volume's own node
// may be lost.
func finalizerIsDue(pv *corev1.PersistentVolume) bool {
	has := slices.Contains(pv.Finalizers, api.FinalizerProvisioner)
	if pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
		return !has && pv.DeletionTimestamp == nil && pv.Status.Phase == corev1.VolumeBound
	}
	return has
}

// mayBeOn reports whether the PersistentVolume's node affinity does not exclude the node by its name.
func mayBeOn(pv *corev1.PersistentVolume, node string) bool {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return true
	}
	return slices.ContainsFunc(pv.Spec.NodeAffinity.Required.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
		return !slices.ContainsFunc(term.MatchExpressions, func(e corev1.NodeSelectorRequirement) bool {
			return e.Key == api.TopologyKey && e.Operator == corev1.NodeSelectorOpIn && !slices.Contains(e.Values, node)
		})
	})
}
