package main

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestUnansweredPageHasNoURL: the error of a driver that does not answer names its pod, and not the request with all classes.
func TestUnansweredPageHasNoURL(t *testing.T) {
	c, err := newCluster(&rest.Config{Host: "http://127.0.0.1:1"}, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "nodelvm-system", Name: "nodelvm-x"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	_, err = c.page(t.Context(), pod, map[string]map[string]string{"local": {"volumeGroup": "vg-data"}})
	if err == nil || !strings.HasPrefix(err.Error(), "the driver (pod nodelvm-x) does not answer: ") || strings.Contains(err.Error(), "localhost") || strings.Contains(err.Error(), "class=") {
		t.Errorf("%v", err)
	}
}
