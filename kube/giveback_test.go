package kube

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubetest"
)

// TestGiveBack: a clone on this node without a CreateVolume call returns to the scheduler if its source is proven to be on another node.
func TestGiveBack(t *testing.T) {
	const claimPath, volumePath = "/api/v1/namespaces/ns/persistentvolumeclaims/", "/api/v1/persistentvolumes/"
	other := kubetest.VolumeOn("node-2", "data")
	other.Spec.ClaimRef.UID = "former"
	for name, test := range map[string]struct {
		source string
		there  map[string]any
		given  bool
	}{
		"on another node":  {"data", map[string]any{"data": kubetest.Claim("data", "late", "pvc-data"), "pvc-data": kubetest.VolumeOn("node-2", "data")}, true},
		"here":             {"data", map[string]any{"data": kubetest.Claim("data", "late", "pvc-data"), "pvc-data": kubetest.VolumeOn("node-1", "data")}, false},
		"another's volume": {"data", map[string]any{"data": kubetest.Claim("data", "late", "pvc-data"), "pvc-data": other}, false},
		"not bound":        {"data", map[string]any{"data": kubetest.Claim("data", "late", "")}, false},
		"no claim":         {"data", nil, false},
		"no name":          {strings.Repeat("x", 300), nil, false},
	} {
		answers := map[string]any{"PATCH " + claimPath + "clone": kubetest.Claim("clone", "late", ""), "POST /api/v1/namespaces/ns/events": &corev1.Event{}}
		for name, o := range test.there {
			answers["GET "+claimPath+name], answers["GET "+volumePath+name] = o, o
		}
		client, sent := kubetest.RecordedClient(t, answers)
		agent := NewAgent(Config{Client: client, Node: "node-1", Log: slog.New(slog.DiscardHandler)})
		clone := given("clone", "late", "node-1")
		clone.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: test.source}
		if err := agent.claims.Add(clone); err != nil {
			t.Fatal(err)
		}
		agent.retryDelay = time.Nanosecond
		if err := agent.retrigger(t.Context(), clone); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if told := slices.Contains(sent(), "POST /api/v1/namespaces/ns/events"); told != test.given || !slices.Contains(sent(), "PATCH "+claimPath+"clone") {
			t.Errorf("%s: the requests %q", name, sent())
		}
	}
}

// TestLargeClaimIsIgnored: the store keeps no text of a claim that csi-provisioner does not get.
func TestLargeClaimIsIgnored(t *testing.T) {
	long := strings.Repeat("x", api.MaxObject)
	large := given("large", "late", "node-1")
	large.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: long}
	marked := kubetest.Claim("marked", "late", "pvc-marked")
	marked.Annotations = map[string]string{api.AnnotationTrimInterval: long}
	store := newClaimStore("node-1", func(string) {})
	for _, claim := range []*corev1.PersistentVolumeClaim{large, marked} {
		if err := store.Add(claim); err != nil {
			t.Fatal(err)
		}
	}
	kept, ok := store.waiting("ns/large")
	if !ok || kept.Size() > 1000 || kept.Spec.StorageClassName != nil {
		t.Errorf("kept %t: %.200v", ok, kept)
	}
	if own, _ := store.bound("ns/marked"); own.trim != "" {
		t.Errorf("kept %d bytes of an annotation", len(own.trim))
	}
}
