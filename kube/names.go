package kube

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// DriverName is the name of this driver in StorageClass, PersistentVolume and VolumeSnapshotContent objects.
const DriverName = "nodelvm.io"

// annSelectedNode names the node that the scheduler selected for a claim. It remains after the claim is bound.
const annSelectedNode = "volume.kubernetes.io/selected-node"

const (
	kindSnapshot = "VolumeSnapshot"
	kindClaim    = "PersistentVolumeClaim"
)

func keyOf(claim *corev1.PersistentVolumeClaim) string { return claim.Namespace + "/" + claim.Name }

// isOn reports whether a PersistentVolume is this driver's and usable on that node alone.
func isOn(pv *corev1.PersistentVolume, node string) bool {
	if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != DriverName || pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return false
	}
	terms := pv.Spec.NodeAffinity.Required.NodeSelectorTerms
	for _, term := range terms {
		ours := false
		for _, e := range term.MatchExpressions {
			ours = ours || e.Key == topologyKey && e.Operator == corev1.NodeSelectorOpIn && len(e.Values) == 1 && e.Values[0] == node
		}
		if !ours {
			return false
		}
	}
	return len(terms) > 0
}

func classOf(claim *corev1.PersistentVolumeClaim) string {
	return ptr.Deref(claim.Spec.StorageClassName, "")
}

// nodeOf returns the node in a PersistentVolume's affinity; "": none, or more than one.
func nodeOf(pv *corev1.PersistentVolume) string {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return ""
	}
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if e.Key == topologyKey && len(e.Values) == 1 && isOn(pv, e.Values[0]) {
				return e.Values[0]
			}
		}
	}
	return ""
}

func ephemeralClaim(pod *corev1.Pod, v corev1.Volume) string { return pod.Name + "-" + v.Name }

const backoffFirst = time.Second

const backoffMost = 30 * time.Second

// topologyKey is the label in a PersistentVolume's node affinity.
const topologyKey = "topology.nodelvm.io/node"

const kindVolume = "PersistentVolume"

// Annotations on a PersistentVolume and a VolumeSnapshotContent. Each holds a time (RFC 3339, UTC), except the last.
const (
	annLostSince = "nodelvm.io/lost-since"              // Written by the janitor: when it first observed the loss of the node or group.
	annGroupLost = "nodelvm.io/volume-group-lost-since" // Written by the node: when its volume group disappeared.
	annAbandoned = "nodelvm.io/abandoned-since"         // Written by the janitor: when it released the claim of a retained volume.
	annPolicy    = "nodelvm.io/original-reclaim-policy" // Written by the janitor: the policy of a volume whose claim it releases, Retain meanwhile.
)

// claimKey splits namespace/name.
func claimKey(key string) (namespace, name string) {
	namespace, name, _ = strings.Cut(key, "/")
	return namespace, name
}
