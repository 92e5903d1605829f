package kube

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodelvm/nodelvm/kube/kubetest"
)

// usualPod returns a StatefulSet's pod as the API server stores it while it waits for a node: about 4 KB.
func usualPod(i int) corev1.Pod {
	pod := podWith(fmt.Sprintf("web-%d", i), 0, fmt.Sprintf("data-web-%d", i))
	pod.Namespace, pod.UID = "ns", kubetest.TypesUID(fmt.Sprintf("0d6bb3a0-5f0c-4d5a-9a53-%012d", i))
	pod.Labels = map[string]string{"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "web", "controller-revision-hash": "web-7d9f8c6b5"}
	pod.Status.Phase = corev1.PodPending
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable",
		Message: "0/100 nodes are available: 100 node(s) did not have enough free storage. preemption: 0/100 nodes are available: 100 Preemption is not helpful for scheduling."}}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: &metav1.FieldsV1{}}}
	pod.ManagedFields[0].FieldsV1.SetRawString(fmt.Sprintf(`{"f:metadata":{"f:labels":{%q:{}}}}`, strings.Repeat("x", 1200)))
	for c := range 2 {
		container := corev1.Container{Name: fmt.Sprintf("c%d", c), Image: "registry.example.com/team/web:1.2.3", Command: []string{"/bin/web", "--listen=:8080"}}
		for e := range 10 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", e), Value: "a value of usual length"})
		}
		container.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}
		container.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "kube-api-access", MountPath: "/var/run/secrets"}}
		pod.Spec.Containers = append(pod.Spec.Containers, container)
	}
	pod.Spec.Tolerations = []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute"}}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "kube-api-access", VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}}}})
	return pod
}

// listerOf returns a podLister on a server with that answer.
func listerOf(t testing.TB, contentType string, body []byte) *podLister {
	t.Helper()
	return newPodLister(kubetest.AnswerClient(t, contentType, body).Core)
}

// TestPodListDecodesOnlyUsedFields: the reader decodes only the fields in use.
func TestPodListDecodesOnlyUsedFields(t *testing.T) {
	pods := make([]corev1.Pod, 500)
	for i := range pods {
		pods[i] = usualPod(i)
	}
	l := listerOf(t, runtime.ContentTypeProtobuf, kubetest.PodList(t, pods...))
	allocations := testing.AllocsPerRun(5, func() {
		if found, err := l.list(t.Context(), "ns"); err != nil || len(found) != len(pods) {
			t.Fatal(len(found), err)
		}
	})
	if each := allocations / float64(len(pods)); each > 40 {
		t.Errorf("%.0f allocations for each pod", each)
	}
}

// BenchmarkWaitingPods lists a namespace in which 5,000 pods wait for a node.
func BenchmarkWaitingPods(b *testing.B) {
	pods := make([]corev1.Pod, 5000)
	for i := range pods {
		pods[i] = usualPod(i)
	}
	body := kubetest.PodList(b, pods...)
	l := listerOf(b, runtime.ContentTypeProtobuf, body)
	b.ReportMetric(float64(len(body)), "wire-B")
	b.ReportAllocs()
	for b.Loop() {
		if found, err := l.list(b.Context(), "ns"); err != nil || len(found) != len(pods) {
			b.Fatal(len(found), err)
		}
	}
}
