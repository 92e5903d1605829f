//go:build e2e

package apiserver

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestCloneOfPodThatAvoidsItsSource: a required anti-affinity to the pod of the source excludes the only node on which a clone is possible.
// The claim stays unbound, and the event names the rule.
func TestCloneOfPodThatAvoidsItsSource(t *testing.T) {
	here := newNode(t, "a")
	patch := `{"metadata": {"labels": {"` + corev1.LabelHostname + `": "` + here.name + `"}}, "spec": {"taints": null}}`
	if _, err := admin.CoreV1().Nodes().Patch(t.Context(), here.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	here.start(t, nil)
	here.bound(t, "data", corev1.PersistentVolumeFilesystem)
	instance := func(name, claim, node string) {
		t.Helper()
		pod := podUsing(t, name+"-first", claim).DeepCopy()
		must(t, admin.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
		db := map[string]string{"db": "orders"}
		pod.ObjectMeta = metav1.ObjectMeta{Name: name, Namespace: pod.Namespace, Labels: db}
		pod.Spec.NodeName = node
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: db}}}}}
		if _, err := admin.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	instance("db-1", "data", here.name)
	instance("db-2", "clone", "")
	claim := copyOf(t, "clone", "", "PersistentVolumeClaim", "data", "another-node")
	why := eventOn(t, claim.Namespace, claim.Name, "SourceNodeExcluded")
	if want := "the required anti-affinity of pod db-2 excludes the node of pod " + claim.Namespace + "/db-1"; !strings.Contains(why, want) {
		t.Errorf("the event says %q, want %q", why, want)
	}
	until(t, claim, "left to the scheduler", selectedIs("another-node"))
	expectNoWrites(t, here)
}
