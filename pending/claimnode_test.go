package pending

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
)

// TestNodeOfClaim: the selected node counts while the claim is unbound, then only the affinity of its PersistentVolume.
func TestNodeOfClaim(t *testing.T) {
	onNode2 := func(change func(pv *corev1.PersistentVolume)) *corev1.PersistentVolume {
		pv := &corev1.PersistentVolume{}
		pv.Name, pv.Spec.CSI = "pvc-1", &corev1.CSIPersistentVolumeSource{Driver: api.DriverName}
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "1"}
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term("In", "node-2")}}}
		change(pv)
		return pv
	}
	for name, test := range map[string]struct {
		volume, selected string
		pv               *corev1.PersistentVolume
		want             string
	}{
		"unbound":                              {"", "node-1", nil, "node-1"},
		"unbound, and no node selected":        {"", "", nil, ""},
		"bound":                                {"pvc-1", "node-2", onNode2(func(*corev1.PersistentVolume) {}), "node-2"},
		"bound, another node selected":         {"pvc-1", "node-1", onNode2(func(*corev1.PersistentVolume) {}), "node-2"},
		"bound, no node selected":              {"pvc-1", "", onNode2(func(*corev1.PersistentVolume) {}), "node-2"},
		"the volume is not known":              {"pvc-1", "node-1", nil, ""},
		"the claim names another volume":       {"pvc-2", "node-1", onNode2(func(*corev1.PersistentVolume) {}), ""},
		"the volume is another claim's":        {"pvc-1", "node-1", onNode2(func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.UID = "2" }), ""},
		"the volume is reserved for the claim": {"pvc-1", "node-1", onNode2(func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.UID = "" }), "node-2"},
		"the volume is another driver's":       {"pvc-1", "node-1", onNode2(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver = "ebs.csi.aws.com" }), ""},
		"the volume has no affinity":           {"pvc-1", "node-1", onNode2(func(pv *corev1.PersistentVolume) { pv.Spec.NodeAffinity = nil }), ""},
	} {
		claim := &corev1.PersistentVolumeClaim{}
		claim.Namespace, claim.Name, claim.UID, claim.Spec.VolumeName = "shop", "data", "1", test.volume
		claim.Annotations = map[string]string{api.AnnotationSelectedNode: test.selected}
		if got := NodeOfClaim(claim, test.pv); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
