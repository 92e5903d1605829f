package pending

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// BytesOf returns a quantity in whole bytes, at most what int64 holds. Whoever writes a quantity can give it an exponent of millions: Quantity.Cmp
// takes seconds for it, and so does Quantity.Value if it is zero; else that returns 0.
func BytesOf(q *resource.Quantity) lvm.Bytes {
	if q.IsZero() {
		return 0
	}
	if n := q.Value(); n != 0 {
		return lvm.Bytes(n)
	}
	return math.MaxInt64
}

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

// NodeOf returns the node in the affinity of a PersistentVolume of this driver; "": none, or more than one.
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

// ClaimName returns the claim of one volume of a pod; "": it has none.
func ClaimName(pod *corev1.Pod, v corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

// ClaimNames returns the claims that a pod uses, in the order of its volumes.
func ClaimNames(pod *corev1.Pod) (names []string) {
	for _, v := range pod.Spec.Volumes {
		if name := ClaimName(pod, v); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// UsesClaim reports whether a pod uses the claim.
func UsesClaim(pod *corev1.Pod, claim string) bool { return slices.Contains(ClaimNames(pod), claim) }

// NodeOfClaim returns the node of a claim's volume; "": unknown, or none. An unbound claim gets its volume on the node that is selected
// for it. A bound one has it where the affinity of its PersistentVolume says: a restore, a volume populator or an admin may bind a claim
// to a volume on another node than the selected one. pv is the PersistentVolume that the claim names; nil: the caller does not know it.
func NodeOfClaim(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) string {
	switch {
	case claim.Spec.VolumeName == "":
		return claim.Annotations[api.AnnotationSelectedNode]
	case pv == nil || pv.Name != claim.Spec.VolumeName || !MayBind(pv, claim):
		return ""
	}
	return NodeOf(pv)
}

// MayBind reports whether a claim that names a PersistentVolume is, or can become, bound to it: the PersistentVolume names
// the claim, or no claim. A claim may name any volume.
func MayBind(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	ref := pv.Spec.ClaimRef
	return ref == nil || ref.Namespace == claim.Namespace && ref.Name == claim.Name && (ref.UID == "" || ref.UID == claim.UID)
}

// RulesAgainst says which taints, node selector and node affinity keep a pod from a node, and whether the node is cordoned.
func RulesAgainst(pod *corev1.Pod, node *corev1.Node) (rules []string) {
	for _, o := range ruleOf(pod).obstacles(node) {
		rules = append(rules, o.text)
	}
	return rules
}

// NodeObstacles says what keeps a volume of the class from a node for these pods, apart from disks and the driver: the facts' class, pods, their other
// volumes and the source count.
func NodeObstacles(f Facts, node *corev1.Node) (texts []string) {
	for _, o := range schedulingObstacles(f, node) {
		texts = append(texts, o.text)
	}
	return texts
}

// IsPlacedByScheduler reports whether a restore or clone gets its volume on the node that the scheduler chooses: its class asks for full copies. A
// read-only copy shares its source's blocks. class may be nil.
func IsPlacedByScheduler(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) bool {
	return class != nil && class.Provisioner == api.DriverName && class.Parameters[api.ParameterRestoreOnOtherNodes] == "true" &&
		(SnapshotOf(claim) != "" || ClonedFrom(claim) != "") && !slices.Contains(claim.Spec.AccessModes, corev1.ReadOnlyMany)
}
