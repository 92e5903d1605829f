//go:build e2e

package apiserver

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestAllowedTopologies: csi-provisioner compares a class' allowedTopologies with the driver's own topology key alone. Where a class names
// another label, it creates no volume, whatever labels the node has. So the chart refuses such a class, and doctor reports it.
func TestAllowedTopologies(t *testing.T) {
	here := newNode(t, "a")
	logs := here.startSidecars(t)
	_, err := admin.CoreV1().Nodes().Patch(t.Context(), here.name, types.MergePatchType, []byte(`{"metadata": {"labels": {"zone": "a"}}}`), metav1.PatchOptions{})
	must(t, err)
	claimOf := func(class, key, value string) *corev1.PersistentVolumeClaim {
		c := classOf(class, map[string]string{"volumeGroup": "vg"})
		c.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: key, Values: []string{value}}}}}
		create(t, admin.StorageV1().StorageClasses(), c)
		return here.selectedClaim(t, class, func(claim *corev1.PersistentVolumeClaim) { claim.Spec.StorageClassName = &class })
	}
	here.untilProvisioned(t, claimOf("here", topology, here.name))
	claimOf("zone", "zone", "a")
	soon(t, "csi-provisioner refuses the claim", func() bool { return strings.Contains(logs(), "is not in allowed topologies") })
}
