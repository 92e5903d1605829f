//go:build e2e

package apiserver

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
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

// TestPeerClaims: what belongs to the pod and to this driver is found, and nothing else.
func TestPeerClaims(t *testing.T) {
	here := newNode(t, "a")
	agent, sent := here.asking(t)
	immediate, foreign := "immediate", "foreign"
	atOnce := classOf(immediate, map[string]string{"volumeGroup": "vg"})
	atOnce.VolumeBindingMode = nil
	others := classOf(foreign, nil)
	others.Provisioner = "ebs.example.org"
	for _, class := range []*storagev1.StorageClass{atOnce, others} {
		create(t, admin.StorageV1().StorageClasses(), class)
	}
	newClaim(t, "data", plain)
	other := newClaim(t, "other", func(c *corev1.PersistentVolumeClaim) {
		block := corev1.PersistentVolumeBlock
		c.Annotations[selected], c.Spec.VolumeMode = "node-x", &block
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	})
	bound := here.bound(t, "bound", corev1.PersistentVolumeFilesystem)
	newClaim(t, "at-once", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &immediate })
	newClaim(t, "cloud", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &foreign })
	newClaim(t, "unused", plain)
	newClaim(t, "web-stolen", plain) // an ephemeral volume's name, and not made for it
	pod := podUsing(t, "web", "data", "other", "bound", "at-once", "cloud", "missing", ":cache", ":stolen")
	cache := newClaim(t, "web-cache", func(c *corev1.PersistentVolumeClaim) {
		c.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))}
	})
	parameters := map[string]string{"volumeGroup": "vg", "layout": "thin"}
	want := api.PodClaims{Pods: []string{"web"}, PodUID: string(pod.UID), Claims: []api.PodClaim{
		{Name: "other", UID: string(other.UID), Node: "node-x", Size: 1 << 30, Block: true, AccessModes: []string{"ReadWriteOncePod"}, Parameters: parameters},
		{Name: "bound", UID: string(bound.UID), Node: here.name, Bound: true},
		{Name: "web-cache", UID: string(cache.UID), Size: 1 << 30, AccessModes: []string{"ReadWriteOnce"}, Parameters: parameters},
	}}
	sent.take()
	got, err := agent.PodClaims(t.Context(), namespace(t), "data")
	must(t, err)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if n := len(sent.take()); n > 1+7+1+4 { // pods, claims, one PersistentVolume, and the classes, since no watch has brought them
		t.Errorf("%d requests", n)
	}
	ofCache, err := agent.PodClaims(t.Context(), namespace(t), "web-cache")
	if err != nil || !slices.ContainsFunc(ofCache.Claims, func(s api.PodClaim) bool { return s.Name == "data" }) {
		t.Errorf("asked for the ephemeral volume: %+v, %v", ofCache, err)
	}
	if stranger, err := agent.PodClaims(t.Context(), namespace(t), "unused"); err != nil || len(stranger.Pods) > 0 {
		t.Errorf("a claim that no pod uses: %+v, %v", stranger, err)
	}
}
