package kubeclient

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/pending"
)

// Kinds of objects.
const (
	KindClass    = "StorageClass"
	KindVolume   = "PersistentVolume"
	KindClaim    = "PersistentVolumeClaim"
	KindSnapshot = "VolumeSnapshot"
	KindContent  = "VolumeSnapshotContent"
)

func KeyOf(claim *corev1.PersistentVolumeClaim) string { return claim.Namespace + "/" + claim.Name }

// IsOn is pending.IsOn.
func IsOn(pv *corev1.PersistentVolume, node string) bool { return pending.IsOn(pv, node) }

func ClassOf(claim *corev1.PersistentVolumeClaim) string {
	return ptr.Deref(claim.Spec.StorageClassName, "")
}

// NodeOf is pending.NodeOf.
func NodeOf(pv *corev1.PersistentVolume) string { return pending.NodeOf(pv) }

// EphemeralClaim returns the claim of a generic ephemeral volume.
func EphemeralClaim(pod *corev1.Pod, v corev1.Volume) string { return pending.ClaimName(pod, v) }

const BackoffFirst = time.Second

const BackoffMost = 30 * time.Second

// ClaimKey splits namespace/name.
func ClaimKey(key string) (namespace, name string) {
	namespace, name, _ = strings.Cut(key, "/")
	return namespace, name
}
