package kube

import (
	"bytes"
	"encoding/json"
	"fmt"
	stdreflect "reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/kube/podlist"
)

func waitingPods(t *testing.T, body []byte) (pods []waitingPod, err error) {
	t.Helper()
	_, err = podlist.Read(bytes.NewReader(body), waitingPodFields, func(pod *corev1.Pod) {
		if p, matters := waitingPodOf(pod); matters {
			pods = append(pods, p)
		}
	})
	return pods, err
}

// TestPodReaderMatchesClientGo: the reader returns the same fields as a complete decoder, in both encodings, and an error for a
// truncated list.
func TestPodReaderMatchesClientGo(t *testing.T) {
	now := metav1.NewTime(time.Unix(1.7e9, 0))
	pods := []corev1.Pod{usualPod(0), usualPod(1), usualPod(2), usualPod(3), usualPod(4), podWith("claimless", 0)}
	pods[1].DeletionTimestamp = &now
	pods[2].Status.Phase = corev1.PodFailed
	pods[3].Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "quota"}}
	pods[4].Spec.Volumes = append(pods[4].Spec.Volumes, corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}}}}})
	var want []waitingPod
	for i := range pods {
		if p, matters := waitingPodOf(&pods[i]); matters {
			want = append(want, p)
		}
	}
	if len(want) != 2 || len(want[1].claims) != 2 || len(want[1].ephemeral) != 1 || want[0].uid == "" {
		t.Fatalf("the test's own pods: %+v", want)
	}
	protobuf := kubetest.PodList(t, pods...)
	text, err := json.Marshal(corev1.PodList{Items: pods})
	must(t, err)
	for encoding, body := range map[string][]byte{runtime.ContentTypeProtobuf: protobuf, runtime.ContentTypeJSON: text} {
		got, err := listerOf(t, encoding, body).list(t.Context(), "ns")
		for i := range got { // a decoded time has the machine's zone
			got[i].created = want[i].created
		}
		if err != nil || !stdreflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v", encoding, got, err)
		}
	}
	fieldsEnd := bytes.LastIndex(protobuf, []byte("claimless")) // fields after the items may be missing
	for n := range fieldsEnd {
		if got, err := waitingPods(t, protobuf[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes are read as %d pods", n, len(protobuf), len(got))
		}
	}
	if got, err := waitingPods(t, kubetest.PodList(t)); err != nil || len(got) != 0 {
		t.Errorf("an empty list: %v, %v", got, err)
	}
}

// TestHugePodsDoNotCount: a tenant's pods with long or many names of claims cost bounded memory, and its usual pods are found before and after them.
func TestHugePodsDoNotCount(t *testing.T) {
	names := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("%s-%d", strings.Repeat("x", 240), i))
		}
		return all
	}
	pods := []corev1.Pod{usualPod(1)}
	for i := range 5 {
		pods = append(pods, podWith(fmt.Sprintf("long-%d", i), 0, strings.Repeat("y", 1<<20)), podWith(fmt.Sprintf("wide-%d", i), 0, names(4000)...))
	}
	pods = append(pods, usualPod(2))
	for i := range 100 {
		pods = append(pods, podWith(fmt.Sprintf("many-%d", i), 0, names(podClaimsMost-10)...))
	}
	got, err := listerOf(t, runtime.ContentTypeProtobuf, kubetest.PodList(t, pods...)).list(t.Context(), "ns")
	must(t, err)
	kept, usual := 0, 0
	for _, pod := range got {
		if pod.name == "web-1" || pod.name == "web-2" {
			usual++
		}
		for _, claim := range pod.claims {
			kept += len(claim)
		}
	}
	if usual != 2 || kept > namesMost {
		t.Errorf("%d of 2 usual pods are found, and %d KiB of names are kept of %d pods; at most %d KiB may be", usual, kept>>10, len(got), namesMost>>10)
	}
}
