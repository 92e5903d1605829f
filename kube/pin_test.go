package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestSourceOf(t *testing.T) {
	const group = "snapshot.storage.k8s.io"
	for _, test := range []struct {
		name string
		ref  *corev1.TypedObjectReference
		want source
	}{
		{"none", nil, source{}},
		{"a snapshot", &corev1.TypedObjectReference{APIGroup: ptr.To(group), Kind: "VolumeSnapshot", Name: "s"}, source{kindSnapshot, "ns/s"}},
		{"a claim", &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "c"}, source{kindClaim, "ns/c"}},
		{"a claim, its group said", &corev1.TypedObjectReference{APIGroup: ptr.To(""), Kind: "PersistentVolumeClaim", Name: "c"}, source{kindClaim, "ns/c"}},
		{"another group's snapshot", &corev1.TypedObjectReference{APIGroup: ptr.To("example.com"), Kind: "VolumeSnapshot", Name: "s"}, source{}},
		{"another group's claim", &corev1.TypedObjectReference{APIGroup: ptr.To("example.com"), Kind: "PersistentVolumeClaim", Name: "c"}, source{}},
		{"a populator", &corev1.TypedObjectReference{APIGroup: ptr.To("example.com"), Kind: "Recipe", Name: "r"}, source{}},
		{"another namespace", &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "c", Namespace: ptr.To("there")}, source{}},
	} {
		c := claim("copy", "thin", "")
		c.Spec.DataSourceRef = test.ref
		if got := sourceOf(c); got != test.want {
			t.Errorf("%s: got %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestIsOn(t *testing.T) {
	pv := func(driver string, terms ...corev1.NodeSelectorTerm) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{}
		v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver}
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}}
		return v
	}
	on := func(op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: topologyKey, Operator: op, Values: values}}}
	}
	in := corev1.NodeSelectorOpIn
	for name, test := range map[string]struct {
		pv   *corev1.PersistentVolume
		want bool
	}{
		"this node":      {pv(DriverName, on(in, "node-1")), true},
		"another node":   {pv(DriverName, on(in, "node-2")), false},
		"another driver": {pv("other.io", on(in, "node-1")), false},
		"two nodes":      {pv(DriverName, on(in, "node-1", "node-2")), false},
		"either":         {pv(DriverName, on(in, "node-1"), on(in, "node-2")), false},
		"all but this":   {pv(DriverName, on(corev1.NodeSelectorOpNotIn, "node-1")), false},
		"anywhere":       {pv(DriverName), false},
		"no affinity":    {&corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: pv(DriverName).Spec.PersistentVolumeSource}}, false},
		"no CSI volume":  {&corev1.PersistentVolume{}, false},
	} {
		if got := isOn(test.pv, "node-1"); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
