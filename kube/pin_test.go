package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/pending"
)

func TestSourceOf(t *testing.T) {
	const group = "snapshot.storage.k8s.io"
	for _, test := range []struct {
		name string
		ref  *corev1.TypedObjectReference
		want source
	}{
		{"none", nil, source{}},
		{"a snapshot", &corev1.TypedObjectReference{APIGroup: ptr.To(group), Kind: "VolumeSnapshot", Name: "s"}, source{kubeclient.KindSnapshot, "ns/s"}},
		{"a claim", &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "c"}, source{kubeclient.KindClaim, "ns/c"}},
		{"a claim, its group said", &corev1.TypedObjectReference{APIGroup: ptr.To(""), Kind: "PersistentVolumeClaim", Name: "c"}, source{kubeclient.KindClaim, "ns/c"}},
		{"another group's snapshot", &corev1.TypedObjectReference{APIGroup: ptr.To("example.com"), Kind: "VolumeSnapshot", Name: "s"}, source{}},
		{"another group's claim", &corev1.TypedObjectReference{APIGroup: ptr.To("example.com"), Kind: "PersistentVolumeClaim", Name: "c"}, source{}},
		{"a populator", &corev1.TypedObjectReference{APIGroup: ptr.To("example.com"), Kind: "Recipe", Name: "r"}, source{}},
		{"another namespace", &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "c", Namespace: ptr.To("there")}, source{}},
	} {
		c := kubetest.Claim("copy", "thin", "")
		c.Spec.DataSourceRef = test.ref
		if got := sourceOf(c); got != test.want {
			t.Errorf("%s: got %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestVolumeIsOnNode(t *testing.T) {
	pv := func(driver string, terms ...corev1.NodeSelectorTerm) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{}
		v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver}
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}}
		return v
	}
	on := func(op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: api.TopologyKey, Operator: op, Values: values}}}
	}
	in := corev1.NodeSelectorOpIn
	for name, test := range map[string]struct {
		pv   *corev1.PersistentVolume
		want bool
	}{
		"this node":      {pv(api.DriverName, on(in, "node-1")), true},
		"another node":   {pv(api.DriverName, on(in, "node-2")), false},
		"another driver": {pv("other.io", on(in, "node-1")), false},
		"two nodes":      {pv(api.DriverName, on(in, "node-1", "node-2")), false},
		"either":         {pv(api.DriverName, on(in, "node-1"), on(in, "node-2")), false},
		"all but this":   {pv(api.DriverName, on(corev1.NodeSelectorOpNotIn, "node-1")), false},
		"anywhere":       {pv(api.DriverName), false},
		"no affinity":    {&corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: pv(api.DriverName).Spec.PersistentVolumeSource}}, false},
		"no CSI volume":  {&corev1.PersistentVolume{}, false},
	} {
		if got := pending.IsOn(test.pv, "node-1"); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestContentOfSnapshotWithFormerName: a retained content outlives its snapshot, and another snapshot may get its name, here or on
// another node.
func TestContentOfSnapshotWithFormerName(t *testing.T) {
	const hNew, hOld = kubetest.TestVG + "/s-new", kubetest.TestVG + "/s-old"
	for name, test := range map[string]struct {
		now     string // UID of the snapshot with that name; "": none
		content string // the content that the snapshot names
		here    []*kubeclient.Content
		deleted string
		want    string
		binding bool
	}{
		"one":                                {"new", "b", []*kubeclient.Content{kubetest.ContentOf("b", "new", hNew)}, "", hNew, false},
		"none here":                          {"new", "b", nil, "", "", false},
		"the new one is elsewhere":           {"new", "b", []*kubeclient.Content{kubetest.ContentOf("a", "old", hOld)}, "", "", false},
		"both here":                          {"new", "b", []*kubeclient.Content{kubetest.ContentOf("b", "new", hNew), kubetest.ContentOf("a", "old", hOld)}, "", hNew, false},
		"the old one's content goes at last": {"new", "b", []*kubeclient.Content{kubetest.ContentOf("a", "old", hOld), kubetest.ContentOf("b", "new", hNew)}, "a", hNew, false},
		"it names no snapshot's UID yet":     {"new", "", []*kubeclient.Content{kubetest.ContentOf("b", "", hNew)}, "", "", true},
		"its snapshot names none yet":        {"new", "", []*kubeclient.Content{kubetest.ContentOf("b", "new", hNew)}, "", "", true},
		"its snapshot is not there":          {"", "", []*kubeclient.Content{kubetest.ContentOf("b", "new", hNew)}, "", "", true},
		"its snapshot names another one":     {"new", "c", []*kubeclient.Content{kubetest.ContentOf("b", "new", hNew)}, "", "", false},
		"another one names its snapshot too": {"new", "b", []*kubeclient.Content{kubetest.ContentOf("forged", "new", hOld), kubetest.ContentOf("b", "new", hNew)}, "", hNew, false},
	} {
		t.Run(name, func(t *testing.T) {
			answers := map[string]any{"GET /apis/snapshot.storage.k8s.io/v1/namespaces/ns/volumesnapshots/nightly": map[string]any{
				"apiVersion": "snapshot.storage.k8s.io/v1", "kind": kubeclient.KindSnapshot, "metadata": map[string]any{"namespace": "ns", "name": "nightly", "uid": test.now},
				"status": map[string]any{"boundVolumeSnapshotContentName": test.content}}}
			if test.now == "" {
				clear(answers)
			}
			client, _ := kubetest.RecordedClient(t, answers)
			agent := NewAgent(Config{Client: client, Node: "node-1"})
			for _, c := range test.here {
				must(t, agent.contents.Add(c))
			}
			for _, c := range test.here {
				if c.Name == test.deleted {
					must(t, agent.contents.Delete(c))
				}
			}
			got, binding, err := agent.handleOf(t.Context(), "ns/nightly")
			if err != nil || got != test.want || binding != test.binding {
				t.Errorf("got %q, %v, %v; want %q, %v", got, binding, err, test.want, test.binding)
			}
		})
	}
}
