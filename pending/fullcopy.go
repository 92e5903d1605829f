package pending

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/nodelvm/nodelvm/api"
)

// SnapshotOf returns the name of the VolumeSnapshot in the claim's own namespace that the claim is restored from; "": none. Other data sources are
// for volume populators.
func SnapshotOf(claim *corev1.PersistentVolumeClaim) string {
	ref := claim.Spec.DataSourceRef // the API server sets dataSource to the same
	if ref == nil || ref.Namespace != nil && *ref.Namespace != claim.Namespace || ref.Kind != "VolumeSnapshot" || ref.APIGroup == nil || *ref.APIGroup != api.SnapshotGroup {
		return ""
	}
	return ref.Name
}

// IsPlacedByScheduler reports whether a claim with a source gets its volume on the node that the scheduler chooses: its class asks for full copies, and
// it is restored from a snapshot. A read-only copy shares the snapshot's blocks. class may be nil.
func IsPlacedByScheduler(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) bool {
	return class != nil && class.Provisioner == api.DriverName && class.Parameters[api.ParameterRestoreOnOtherNodes] == "true" && SnapshotOf(claim) != "" &&
		!slices.Contains(claim.Spec.AccessModes, corev1.ReadOnlyMany)
}
