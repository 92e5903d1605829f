package claimevents

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
)

func newOtherVolumes(client *kubeclient.Client) *otherVolumes {
	return &otherVolumes{client: client, nodes: map[string]string{}}
}

// using returns a pod of the namespace with these claims.
func using(namespace, name string, claims ...string) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for i, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	}
	return pod
}

// podsOfTenants returns a cluster in which the claims wait, and the answers of its API server: the pods, and accepted events.
func podsOfTenants(pods map[string][]corev1.Pod, claims ...*corev1.PersistentVolumeClaim) (state, map[string]any) {
	s, _ := waiting(time.Now())
	first := s.claims[0]
	s.claims = nil
	for i, claim := range claims {
		claim.CreationTimestamp = metav1.NewTime(first.CreationTimestamp.Add(time.Duration(i) * time.Millisecond))
		claim.Spec.Resources, claim.UID = first.Spec.Resources, kubetest.TypesUID(claim.Namespace+"/"+claim.Name)
		s.claims = append(s.claims, claim)
	}
	answers := map[string]any{}
	for namespace, items := range pods {
		answers["GET /api/v1/namespaces/"+namespace+"/pods"] = &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: items}
		answers["POST /api/v1/namespaces/"+namespace+"/events"] = &corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}}
	}
	return s, answers
}

// waitingIn returns a claim of a namespace that waits.
func waitingIn(namespace, name string) *corev1.PersistentVolumeClaim {
	claim := kubetest.Claim(name, "local", "")
	claim.Namespace = namespace
	return claim
}

func countPrefix(requests []string, prefix string) (n int) {
	for _, request := range requests {
		if strings.HasPrefix(request, prefix) {
			n++
		}
	}
	return n
}

// TestOtherClaimsAreBounded: pods with thousands of claims that do not exist cost few requests, keep their claim's event true, and do not
// delay the event of another tenant.
func TestOtherClaimsAreBounded(t *testing.T) {
	var names []string
	for i := range 2000 {
		names = append(names, fmt.Sprint("missing-", i))
	}
	pods := map[string][]corev1.Pod{"shop": {using("shop", "db", "data")}}
	for i := range podsConsidered {
		pods["tenant"] = append(pods["tenant"], using("tenant", fmt.Sprint("p", i), append(slices.Clone(names[i:]), "data")...))
	}
	s, answers := podsOfTenants(pods, waitingIn("tenant", "data"), waitingIn("shop", "data"))
	client, sent := kubetest.RecordedClient(t, answers)
	r := newReporter(client)
	must(t, r.round(t.Context(), s))
	if got := countPrefix(sent(), "GET /api/v1/namespaces/tenant/persistentvolumeclaims/"); got != otherClaims {
		t.Errorf("%d claims were read, want %d", got, otherClaims)
	}
	for _, uid := range []string{"tenant/data", "shop/data"} {
		if message := r.written[kubetest.TypesUID(uid)].message; !strings.HasPrefix(message, "no node can have the volume; node-1: it has capacity for a volume of at most 3 GiB") {
			t.Errorf("%s: %q", uid, message)
		}
	}
}

// TestOtherClaimsOfARound: a round sends a bounded number of requests, and leaves the claims that it does not reach to the next rounds.
func TestOtherClaimsOfARound(t *testing.T) {
	var others []string
	for i := range otherClaims {
		others = append(others, fmt.Sprint("other-", i))
	}
	pods, claims := map[string][]corev1.Pod{}, []*corev1.PersistentVolumeClaim{}
	for i := range 3 {
		namespace := fmt.Sprint("n", i)
		pods[namespace] = []corev1.Pod{using(namespace, "p", append([]string{"a"}, others...)...), using(namespace, "q", append([]string{"b"}, others...)...)}
		claims = append(claims, waitingIn(namespace, "a"), waitingIn(namespace, "b"))
	}
	s, answers := podsOfTenants(pods, claims...)
	onNode2 := kubetest.VolumeOn("node-2", "x")
	onNode2.Spec.ClaimRef = nil
	answers["GET /api/v1/persistentvolumes/pvc-x"] = onNode2
	for namespace := range pods {
		for _, name := range others {
			answers["GET /api/v1/namespaces/"+namespace+"/persistentvolumeclaims/"+name] = kubetest.Claim(name, "local", "pvc-x")
		}
	}
	client, sent := kubetest.RecordedClient(t, answers)
	r := newReporter(client)
	rounds := 0
	for before := 0; len(r.written) < len(claims) && rounds < 10; rounds++ {
		must(t, r.round(t.Context(), s))
		if reads := countPrefix(sent(), "GET "); reads > before+requestsAtOnce+len(pods) { // and one list of each namespace's pods
			t.Errorf("round %d: %d requests", rounds, reads-before)
		} else {
			before = reads
		}
	}
	if len(r.written) < len(claims) {
		t.Fatalf("after %d rounds %d of %d claims have an event", rounds, len(r.written), len(claims))
	}
	if message := r.written["n0/a"].message; !strings.Contains(message, "the pod also uses claim other-0, whose volume is on node-2") {
		t.Errorf("%q", message)
	}
}

// TestOtherClaimIsReadOnce: claims of one pod share what a round has read, also that a claim does not exist.
func TestOtherClaimIsReadOnce(t *testing.T) {
	s, answers := podsOfTenants(map[string][]corev1.Pod{"ns": {using("ns", "p", "a", "b", "missing"), using("ns", "q", "a", "missing")}},
		waitingIn("ns", "a"), waitingIn("ns", "b"))
	client, sent := kubetest.RecordedClient(t, answers)
	must(t, newReporter(client).round(t.Context(), s))
	if got := countPrefix(sent(), "GET /api/v1/namespaces/ns/persistentvolumeclaims/missing"); got != 1 {
		t.Errorf("it was read %d times", got)
	}
}

// TestForgedVolumeName: a tenant's claim may name the volume of another; that says nothing about the claim's node.
func TestForgedVolumeName(t *testing.T) {
	s, answers := podsOfTenants(map[string][]corev1.Pod{"ns": {using("ns", "p", "data", "forged")}}, waitingIn("ns", "data"))
	answers["GET /api/v1/namespaces/ns/persistentvolumeclaims/forged"] = kubetest.Claim("forged", "local", "pvc-victim")
	answers["GET /api/v1/persistentvolumes/pvc-victim"] = kubetest.VolumeOn("node-2", "victim")
	client, _ := kubetest.RecordedClient(t, answers)
	r := newReporter(client)
	must(t, r.round(t.Context(), s))
	if message := r.written["ns/data"].message; message == "" || strings.Contains(message, "forged") {
		t.Errorf("%q", message)
	}
}

// TestNamespacesShareARound: a namespace with many claims does not delay the only claim of another.
func TestNamespacesShareARound(t *testing.T) {
	pods := map[string][]corev1.Pod{"large": {}, "small": {using("small", "p", "data")}}
	var claims []*corev1.PersistentVolumeClaim
	for i := range 3 * claimsAtOnce {
		claims = append(claims, waitingIn("large", fmt.Sprint("data-", i)))
		pods["large"] = append(pods["large"], using("large", fmt.Sprint("p-", i), fmt.Sprint("data-", i)))
	}
	s, answers := podsOfTenants(pods, append(claims, waitingIn("small", "data"))...)
	client, _ := kubetest.RecordedClient(t, answers)
	r := newReporter(client)
	for round := range 4 {
		must(t, r.round(t.Context(), s))
		if r.considered["small/data"] != r.rounds {
			t.Errorf("round %d left out the claim of the small namespace", round)
		}
	}
	if len(r.written) != len(s.claims) {
		t.Errorf("%d of %d claims have an event", len(r.written), len(s.claims))
	}
}

// TestRefusedEventStopsNoOther: a namespace that is being deleted takes no event. The claims of the others get theirs.
func TestRefusedEventStopsNoOther(t *testing.T) {
	s, answers := podsOfTenants(map[string][]corev1.Pod{"gone": {using("gone", "p", "data")}, "shop": {using("shop", "p", "data")}},
		waitingIn("gone", "data"), waitingIn("shop", "data"))
	bound := waitingIn("gone", "data")
	bound.UID, bound.Spec.VolumeName = "gone/data", "pvc-1"
	answers["GET /api/v1/namespaces/gone/persistentvolumeclaims/data"] = bound
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, known := answers[r.Method+" "+r.URL.Path]
		switch {
		case r.Method != http.MethodGet && strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/gone/"):
			kubetest.Reply(w, http.StatusForbidden, apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", nil).Status())
		case known:
			kubetest.Reply(w, http.StatusOK, body)
		default:
			kubetest.Reply(w, http.StatusNotFound, apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path).Status())
		}
	}))
	client := kubetest.ClientOf(t, server)
	r := newReporter(client)
	if err := r.round(t.Context(), s); !apierrors.IsForbidden(err) {
		t.Errorf("the round returns %v", err)
	}
	if r.written["shop/data"].message == "" {
		t.Error("the other claim has no event")
	}
	r.written["gone/data"] = writtenEvent{about: kubeclient.AboutClaim("gone", "data", "gone/data"), message: "m", at: s.now}
	s.claims = s.claims[1:]
	if err := r.round(t.Context(), s); err != nil || len(r.written) != 1 {
		t.Errorf("the claim that has its volume: %v, %v", err, r.written)
	}
}
