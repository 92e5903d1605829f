//go:build e2e

package apiserver

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/kube"
)

// reads notes what an agent that does not run, and so watches nothing, asks of the API server.
type reads struct {
	mu   sync.Mutex
	sent []string
}

func (r *reads) roundTrip(next http.RoundTripper) http.RoundTripper {
	return trip(func(q *http.Request) (*http.Response, error) {
		r.mu.Lock()
		r.sent = append(r.sent, q.Method+" "+strings.TrimPrefix(q.URL.RequestURI(), "/api/v1/namespaces/"))
		r.mu.Unlock()
		return next.RoundTrip(q)
	})
}

func (r *reads) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := r.sent
	r.sent = nil
	return sent
}

// asking is an agent with the rights of the node's pod.
func (n *node) asking(t *testing.T) (*kube.Agent, *reads) {
	t.Helper()
	r := &reads{}
	return n.agent(t, r.roundTrip), r
}

// podUsing makes a pod with these claims; a name that begins with a colon is a generic ephemeral volume's.
func podUsing(t *testing.T, name string, claims ...string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	for i, claim := range claims {
		v := corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}
		if short, ok := strings.CutPrefix(claim, ":"); ok {
			class := "thin"
			v = corev1.Volume{Name: short, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
				VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{
					StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				}}}}}
		}
		pod.Spec.Volumes = append(pod.Spec.Volumes, v)
	}
	makeAccount(t, namespace(t))
	pod, err := admin.CoreV1().Pods(namespace(t)).Create(t.Context(), pod, metav1.CreateOptions{})
	must(t, err)
	return pod
}

func plain(*corev1.PersistentVolumeClaim) {}

// TestSingleClaimCostsOneList: most pods have one claim, and a burst of them costs less than a listing each.
func TestSingleClaimCostsOneList(t *testing.T) {
	agent, sent := newNode(t, "a").asking(t)
	newClaim(t, "data", plain)
	podUsing(t, "web", "data")
	company, err := agent.PodClaims(t.Context(), namespace(t), "data")
	if err != nil || !slices.Equal(company.Pods, []string{"web"}) || len(company.Claims) != 0 {
		t.Errorf("found %+v, %v", company, err)
	}
	want := []string{"GET " + namespace(t) + "/pods?fieldSelector=spec.nodeName%3D"}
	if got := sent.take(); !slices.Equal(got, want) {
		t.Errorf("requests %q, want %q", got, want)
	}

	var calls sync.WaitGroup
	for range 60 {
		calls.Go(func() {
			if company, err := agent.PodClaims(t.Context(), namespace(t), "data"); err != nil || !slices.Equal(company.Pods, []string{"web"}) {
				t.Errorf("in a burst: %+v, %v", company, err)
			}
		})
	}
	calls.Wait()
	n := len(sent.take())
	t.Logf("60 calls at a time: %d requests", n)
	if n > 30 {
		t.Errorf("60 calls at a time cost %d requests", n)
	}
}
