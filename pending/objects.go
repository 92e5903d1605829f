package pending

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
)

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
