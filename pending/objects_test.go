package pending

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
)

// term names nodes by the driver's label.
func term(operator corev1.NodeSelectorOperator, nodes ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: api.TopologyKey, Operator: operator, Values: nodes}}}
}

// TestNodeOf: a volume is on a node if each term of its affinity demands this node.
func TestNodeOf(t *testing.T) {
	for name, test := range map[string]struct {
		terms []corev1.NodeSelectorTerm
		want  string
	}{
		"one term":            {[]corev1.NodeSelectorTerm{term("In", "node-1")}, "node-1"},
		"two terms, one node": {[]corev1.NodeSelectorTerm{term("In", "node-1"), term("In", "node-1")}, "node-1"},
		"two terms":           {[]corev1.NodeSelectorTerm{term("In", "node-1"), term("In", "node-2")}, ""},
		"a term without it":   {[]corev1.NodeSelectorTerm{term("In", "node-1"), {}}, ""},
		"two nodes":           {[]corev1.NodeSelectorTerm{term("In", "node-1", "node-2")}, ""},
		"not this node":       {[]corev1.NodeSelectorTerm{term("NotIn", "node-1")}, ""},
		"no term":             {nil, ""},
	} {
		pv := &corev1.PersistentVolume{}
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: api.DriverName}
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: test.terms}}
		if got := NodeOf(pv); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if got := IsOn(pv, "node-1"); got != (test.want == "node-1") {
			t.Errorf("%s: on node-1: %t", name, got)
		}
		pv.Spec.CSI.Driver = "ebs.csi.aws.com"
		if got := NodeOf(pv); got != "" {
			t.Errorf("%s, of another driver: %q", name, got)
		}
	}
	if got := NodeOf(&corev1.PersistentVolume{}); got != "" {
		t.Errorf("without affinity: %q", got)
	}
}

func TestClaimNames(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "a", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
		{Name: "b", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "c", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
	}}}
	if got := ClaimNames(pod); !slices.Equal(got, []string{"data", "db-c"}) {
		t.Errorf("%q", got)
	}
}
