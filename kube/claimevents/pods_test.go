package claimevents

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/pending"
)

// explained is a pod with each field that pending.Explain reads.
func explained(name string, claims ...string) corev1.Pod {
	pod := using("ns", name, claims...)
	pod.UID, pod.Status.Phase = "1", corev1.PodPending
	pod.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	pod.Spec.NodeName, pod.Spec.SchedulerName = "node-1", "other"
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "gate"}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "no node"}}
	return pod
}

// TestPodsOfTheClaims: of a namespace the reporter keeps a few pods of each claim that it considers, with all that it reads of them, whatever
// else the namespace has.
func TestPodsOfTheClaims(t *testing.T) {
	var list []corev1.Pod
	for i := range 10 {
		list = append(list, using("ns", fmt.Sprintf("huge-%d", i), strings.Repeat("x", 1<<20)))
	}
	whole := explained("first", "data", "other")
	list = append(list, whole)
	for i := range 2 * podsConsidered {
		list = append(list, explained(fmt.Sprintf("more-%d", i), "data"))
	}
	list = append(list, explained("elsewhere", "unknown"), explained("last", "wal"))
	pods, err := newReporter(kubetest.PodClient(t, list...)).pods(t.Context(), "ns", map[string]bool{"data": true, "wal": true})
	if err != nil || len(pods) != podsConsidered+1 || pods[podsConsidered].Name != "last" {
		t.Fatalf("%d pods, %v", len(pods), err)
	}
	size := 0
	for i := range pods {
		size += pods[i].Size()
	}
	if size > len(pods)*api.MaxObject {
		t.Errorf("%d pods have %d KiB", len(pods), size>>10)
	}
	whole.Namespace, pods[0].Namespace = "", ""
	if is := pods[0]; !apiequality.Semantic.DeepEqual(is.Spec, whole.Spec) || !apiequality.Semantic.DeepEqual(is.Status, whole.Status) || is.Name != whole.Name || is.UID != whole.UID || !pending.UsesClaim(&is, "other") {
		t.Errorf("%+v\nis read as\n%+v", whole, is)
	}
}
