package claimevents

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

const gib = lvm.Bytes(1 << 30)

// waiting returns a cluster of two nodes in which claim ns/data of 6 GiB has waited for a minute, and a pod that uses the claim.
func waiting(now time.Time) (state, []corev1.Pod) {
	claim := kubetest.Claim("data", "local", "")
	claim.CreationTimestamp = metav1.NewTime(now.Add(-time.Minute))
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("6Gi")}
	class := kubetest.Class("local", api.DriverName, storagev1.VolumeBindingWaitForFirstConsumer)
	class.Parameters = map[string]string{api.ParameterVolumeGroup: "vg"}
	s := state{now: now, claims: []*corev1.PersistentVolumeClaim{claim}, classes: []*storagev1.StorageClass{class},
		capacities: []capacity{{"node-1", "local", 5 * gib, 3 * gib}}}
	for _, name := range []string{"node-1", "node-2"} {
		s.nodes = append(s.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{api.TopologyKey: name}}})
	}
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v",
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}}}
	return s, []corev1.Pod{pod}
}

func TestMessageNamesWhatEachNodeLacks(t *testing.T) {
	s, pods := waiting(time.Now())
	const want = "no node can have the volume; node-1: it has capacity for a volume of at most 3 GiB with this class, and the claim requests 6 GiB; " +
		"node-2: nodelvm publishes no capacity for the class there. More: kubectl nodelvm why data -n ns"
	if got := messageOf(factsOf(s, s.claims[0], pods)); got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
	if got := messageOf(factsOf(s, s.claims[0], nil)); got != "" {
		t.Errorf("a claim without a pod: %q", got)
	}
	s.classes[0].Parameters["volumegroup"] = "x"
	if got := messageOf(factsOf(s, s.claims[0], pods)); !strings.Contains(got, `"volumegroup" is unknown (did you mean volumeGroup?)`) {
		t.Errorf("a misspelt parameter: %q", got)
	}
	delete(s.classes[0].Parameters, "volumegroup")
	s.capacities[0].most = 6 * gib
	if got := messageOf(factsOf(s, s.claims[0], pods)); got != "" {
		t.Errorf("a node has the capacity: %q", got)
	}
}

// TestRoundWritesOneEventPerCause: a claim has one event, a second one only when the cause changes or the first is old, and none of
// type Warning once it has its volume.
func TestRoundWritesOneEventPerCause(t *testing.T) {
	now := time.Now()
	s, pods := waiting(now)
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: pods}
	event := &corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}}
	bound := s.claims[0].DeepCopy()
	bound.Spec.VolumeName = "pvc-1"
	client, sent := kubetest.RecordedClient(t, map[string]any{"GET /api/v1/namespaces/ns/pods": list, "POST /api/v1/namespaces/ns/events": event,
		"GET /api/v1/namespaces/ns/persistentvolumeclaims/data": bound})
	r := newReporter(client)
	for _, step := range []struct {
		what   string
		change func()
		writes int
	}{
		{"a new claim", func() { s.now = now.Add(-50 * time.Second) }, 0},
		{"a claim that waits", func() { s.now = now }, 1},
		{"nothing has changed", func() {}, 1},
		{"another cause", func() { s.capacities[0].most = 2 * gib }, 2},
		{"an old event", func() { s.now = now.Add(2 * repeated) }, 3},
		{"the claim has its volume", func() { s.claims = nil }, 4},
		{"nothing waits", func() {}, 4},
	} {
		step.change()
		if err := r.round(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if got := kubetest.Posts(sent()); got != step.writes {
			t.Errorf("%s: %d events were written, want %d: %q", step.what, got, step.writes, sent())
		}
	}
	if len(r.written) > 0 {
		t.Errorf("remembered: %v", r.written)
	}
}

func newReporter(client *kubeclient.Client) *Reporter {
	return &Reporter{Client: client, Log: slog.New(slog.DiscardHandler), Events: &kubeclient.EventRecorder{Client: client, Counts: map[string]kubeclient.EventCount{}}}
}

// TestDeletedObjectsGetNoEvent: a deleted claim or class gets no event that says that it no longer waits.
func TestDeletedObjectsGetNoEvent(t *testing.T) {
	s, pods := waiting(time.Now())
	s.classes[0].Parameters["volumegroup"] = "x"
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: pods}
	event := &corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}}
	client, sent := kubetest.RecordedClient(t, map[string]any{"GET /api/v1/namespaces/ns/pods": list,
		"POST /api/v1/namespaces/ns/events": event, "POST /api/v1/namespaces/default/events": event})
	r := newReporter(client)
	if err := r.round(t.Context(), s); err != nil || len(r.written) != 2 {
		t.Fatalf("%d objects have an event, want claim and class: %v", len(r.written), err)
	}
	before := len(sent())
	s.claims, s.classes = nil, nil
	if err := r.round(t.Context(), s); err != nil || len(r.written) != 0 {
		t.Errorf("%d are remembered: %v", len(r.written), err)
	}
	for _, request := range sent()[before:] {
		if !strings.HasPrefix(request, "GET ") {
			t.Errorf("%s", request)
		}
	}
}

// TestMessageNamesTheOtherVolume: a pod's other claim has its volume on node-1, so this claim's cannot be on node-2.
func TestMessageNamesTheOtherVolume(t *testing.T) {
	s, pods := waiting(time.Now())
	s.capacities = append(s.capacities, capacity{"node-2", "local", 9 * gib, 9 * gib})
	pods[0].Spec.Volumes = append(pods[0].Spec.Volumes, corev1.Volume{Name: "w", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "wal"}}})
	wal := kubetest.Claim("wal", "local", "pvc-wal")
	client, _ := kubetest.RecordedClient(t, map[string]any{"GET /api/v1/namespaces/ns/persistentvolumeclaims/wal": wal,
		"GET /api/v1/persistentvolumes/pvc-wal": kubetest.VolumeOn("node-1", "wal")})
	f := factsOf(s, s.claims[0], pods)
	must(t, newOtherVolumes(client).add(t.Context(), &f))
	if got, want := messageOf(f), "node-2: the pod also uses claim wal, whose volume is on node-1"; !strings.Contains(got, want) {
		t.Errorf("%q does not say %q", got, want)
	}
}

// TestRoundIsBounded: a burst of claims costs a bounded number of requests in each round, and each claim gets its event.
func TestRoundIsBounded(t *testing.T) {
	s, pods := waiting(time.Now())
	for i := range 3*claimsAtOnce - 1 {
		claim := s.claims[0].DeepCopy()
		claim.UID += kubetest.TypesUID(strings.Repeat("x", i+1))
		s.claims = append(s.claims, claim)
	}
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: pods}
	event := &corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}}
	client, sent := kubetest.RecordedClient(t, map[string]any{"GET /api/v1/namespaces/ns/pods": list, "POST /api/v1/namespaces/ns/events": event})
	r := newReporter(client)
	for round := range 3 {
		must(t, r.round(t.Context(), s))
		if got := len(sent()); got > (round+1)*(claimsAtOnce+1) {
			t.Errorf("after round %d: %d requests", round, got)
		}
	}
	if len(r.written) != len(s.claims) {
		t.Errorf("%d of %d claims have an event", len(r.written), len(s.claims))
	}
}

// TestResolvedEventNamesTheNode: the event of a claim that has its volume says where the volume is, and no longer why the claim waited. A
// claim that names the volume of another claim says nothing about a node.
func TestResolvedEventNamesTheNode(t *testing.T) {
	forged := kubetest.VolumeOn("node-2", "victim")
	forged.Name = "pvc-data"
	for name, test := range map[string]struct {
		volume *corev1.PersistentVolume
		named  bool
	}{
		"its volume": {kubetest.VolumeOn("node-2", "data"), true}, "the volume of another claim": {forged, false},
	} {
		var written string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.Method + " " + r.URL.Path {
			case "GET /api/v1/namespaces/ns/persistentvolumeclaims/data":
				kubetest.Reply(w, http.StatusOK, kubetest.Claim("data", "local", "pvc-data"))
			case "GET /api/v1/persistentvolumes/pvc-data":
				kubetest.Reply(w, http.StatusOK, test.volume)
			case "POST /api/v1/namespaces/ns/events":
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				written = string(body)
				kubetest.Reply(w, http.StatusOK, &corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}})
			default:
				kubetest.Reply(w, http.StatusNotFound, apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path).Status())
			}
		}))
		client, err := kubeclient.NewClientFor(&rest.Config{Host: server.URL})
		must(t, err)
		r := newReporter(client)
		s, _ := waiting(time.Now())
		s.claims = nil
		r.written = map[types.UID]writtenEvent{"claim-data": {about: kubeclient.AboutClaim("ns", "data", "claim-data"), message: "no node can have the volume", at: s.now}}
		if err := r.round(t.Context(), s); err != nil || !strings.Contains(written, "resolved: the claim has its volume") || strings.Contains(written, " on node-2") != test.named {
			t.Errorf("%s: %v, %q", name, err, written)
		}
		server.Close()
	}
}

var must = check.Must
