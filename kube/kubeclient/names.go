package kubeclient

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

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

// IsOn reports whether a PersistentVolume is this driver's and usable only on that node.
func IsOn(pv *corev1.PersistentVolume, node string) bool {
	if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != api.DriverName || pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return false
	}
	terms := pv.Spec.NodeAffinity.Required.NodeSelectorTerms
	for _, term := range terms {
		ours := false
		for _, e := range term.MatchExpressions {
			ours = ours || e.Key == api.TopologyKey && e.Operator == corev1.NodeSelectorOpIn && len(e.Values) == 1 && e.Values[0] == node
		}
		if !ours {
			return false
		}
	}
	return len(terms) > 0
}

func ClassOf(claim *corev1.PersistentVolumeClaim) string {
	return ptr.Deref(claim.Spec.StorageClassName, "")
}

// NodeOf returns the node in a PersistentVolume's affinity; "": none, or more than one.
func NodeOf(pv *corev1.PersistentVolume) string {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return ""
	}
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if e.Key == api.TopologyKey && len(e.Values) == 1 && IsOn(pv, e.Values[0]) {
				return e.Values[0]
			}
		}
	}
	return ""
}

func EphemeralClaim(pod *corev1.Pod, v corev1.Volume) string { return pod.Name + "-" + v.Name }

const BackoffFirst = time.Second

const BackoffMost = 30 * time.Second

// ClaimKey splits namespace/name.
func ClaimKey(key string) (namespace, name string) {
	namespace, name, _ = strings.Cut(key, "/")
	return namespace, name
}
