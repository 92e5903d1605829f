package main

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/nodelvm/nodelvm/api"
)

// namespacedAPI serves what an API server does to a developer who may read only claims, pods and events of the namespace shop.
func namespacedAPI(t *testing.T) (c *cluster, asked func() []string) {
	t.Helper()
	claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data-0",
		Annotations: map[string]string{api.AnnotationStorageProvisioner: api.DriverName, api.AnnotationSelectedNode: "node-1"}}}
	bound := claim
	bound.Name, bound.Spec.VolumeName = "bound", "pvc-1"
	foreign := claim
	foreign.Name, foreign.Annotations = "other", map[string]string{api.AnnotationStorageProvisioner: "another.example", api.AnnotationSelectedNode: "node-1"}
	event := corev1.Event{Type: "Normal", Reason: "R", LastTimestamp: metav1.NewTime(time.Unix(1, 0))}
	return apiServer(t, map[string]any{
		"/api/v1/namespaces/shop/persistentvolumeclaims": corev1.PersistentVolumeClaimList{Items: []corev1.PersistentVolumeClaim{claim, bound, foreign}},
		"/api/v1/namespaces/shop/pods":                   corev1.PodList{Items: []corev1.Pod{userOf("data-0", "db-0")}},
		"/api/v1/namespaces/shop/events":                 corev1.EventList{Items: []corev1.Event{event}},
	})
}

// TestDashboardOfADeveloper: a user who may read one namespace sees its claims and pods, and which lists are incomplete. The node of a bound
// claim without a running pod is unknown.
func TestDashboardOfADeveloper(t *testing.T) {
	c, _ := namespacedAPI(t)
	source := newDashboardSource(c, "shop")
	objects := source.Objects(t.Context())
	if len(objects.Claims) != 1 || objects.Claims[0].Claim != "shop/data-0" || objects.Claims[0].Node != "node-1" {
		t.Errorf("claims %+v", objects.Claims)
	}
	if !slices.Equal(objects.Pods["shop/data-0"], []string{"db-0"}) {
		t.Errorf("pods %v", objects.Pods)
	}
	for _, want := range []string{"You see no PersistentVolumes, and a bound claim only while a pod runs with it: ", "claims of all namespaces: you see those of the namespace shop", "pods of all namespaces"} {
		if !slices.ContainsFunc(objects.Limits, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("the limits do not say %q: %q", want, objects.Limits)
		}
	}
	if _, err := source.Nodes(t.Context()); err == nil {
		t.Error("the driver's pods can be listed")
	}
}

// TestDashboardEvents: the source reads events of the named objects only, and refuses names that would change the API path.
func TestDashboardEvents(t *testing.T) {
	c, asked := namespacedAPI(t)
	source := newDashboardSource(c, "shop")
	events, err := source.Events(t.Context(), "shop", "data-0", []string{"db-0"})
	if err != nil || len(events) != 2 || events[1].Object != "PersistentVolumeClaim data-0" && events[0].Object != "PersistentVolumeClaim data-0" {
		t.Errorf("events %+v, %v", events, err)
	}
	before := len(asked())
	for _, bad := range [][2]string{{"..", "data-0"}, {"a/../../secrets", "data-0"}, {"", "data-0"}, {"shop", ""}, {"shop", "a/b"}} {
		if events, err := source.Events(t.Context(), bad[0], bad[1], nil); err == nil {
			t.Errorf("namespace %q, claim %q: events %v", bad[0], bad[1], events)
		}
	}
	if after := asked()[before:]; len(after) > 0 {
		t.Errorf("the API server was asked for %q", after)
	}
}

// TestReadPageLimits: readPage refuses an answer with more bytes or values than any status page before it allocates their memory.
func TestReadPageLimits(t *testing.T) {
	for name, body := range map[string]string{
		"bytes":  `{"version":"` + strings.Repeat("x", pageBytes) + `"}`,
		"values": `{"volumes":[0` + strings.Repeat(",0", pageValues+1) + `]}`,
	} {
		recorder := httptest.NewRecorder()
		if _, err := recorder.WriteString(body); err != nil {
			t.Fatal(err)
		}
		if _, err := readPage("nodelvm-node-1", recorder.Result()); err == nil || !strings.Contains(err.Error(), "larger than the status page of any node") {
			t.Errorf("too many %s: %v", name, err)
		}
	}
}

// TestUnansweredPageHasNoURL: the error of a driver that does not answer names its pod, and not the request with all classes.
func TestUnansweredPageHasNoURL(t *testing.T) {
	c, err := newCluster(&rest.Config{Host: "http://127.0.0.1:1"}, 10*time.Second)
	must(t, err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "nodelvm-system", Name: "nodelvm-x"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	_, err = c.page(t.Context(), pod, map[string]map[string]string{"local": {"volumeGroup": "vg-data"}})
	if err == nil || !strings.HasPrefix(err.Error(), "the driver (pod nodelvm-x) does not answer: ") || strings.Contains(err.Error(), "localhost") || strings.Contains(err.Error(), "class=") {
		t.Errorf("%v", err)
	}
}
