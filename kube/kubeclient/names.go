package kubeclient

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
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

func ClassOf(claim *corev1.PersistentVolumeClaim) string {
	return api.ClassOf(claim.Annotations, claim.Spec.StorageClassName)
}

const BackoffFirst = time.Second

const BackoffMost = 30 * time.Second

// ClaimKey splits namespace/name.
func ClaimKey(key string) (namespace, name string) {
	namespace, name, _ = strings.Cut(key, "/")
	return namespace, name
}

// ObjectKey identifies an object in a queue of work.
type ObjectKey struct {
	Kind string
	Key  string // name or, for an object in a namespace, namespace/name, as KeyOfObject and KeyOf return it
}

func (k ObjectKey) String() string { return k.Kind + " " + k.Key }
