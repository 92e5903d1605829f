package pending

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
)

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
	for _, o := range podObstacles(pod, node) {
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
