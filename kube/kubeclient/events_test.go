package kubeclient_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/kube/kubetest"
)

// TestNow: the time is the API server's, whatever this node's clock says.
func TestNow(t *testing.T) {
	want := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	client, _ := kubetest.RecordedClient(t, map[string]any{"POST /api/v1/namespaces/default/events": &corev1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}, ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(want)},
	}})
	if got, err := client.Now(t.Context(), "node-1"); err != nil || !got.Equal(want) {
		t.Errorf("%s, %v", got, err)
	}
	without, _ := kubetest.RecordedClient(t, nil)
	if got, err := without.Now(t.Context(), "node-1"); err == nil {
		t.Errorf("without an answer: %s", got)
	}
}
