package nodeloss

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/cluster"
	"github.com/nodelvm/nodelvm/kube/clustertest"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// recordedRound is the round of a Controller over a RecordedClient, with the facts about these objects.
func recordedRound(t *testing.T, answers map[string]any, objects ...runtime.Object) (*round, func() []string) {
	t.Helper()
	client, sent := kubetest.RecordedClient(t, answers)
	facts, _ := clustertest.Objects(t, objects...)
	return newController(client).newRound(facts), sent
}

func newController(client *kubeclient.Client) *Controller {
	events := &kubeclient.EventRecorder{Client: client, Counts: map[string]kubeclient.EventCount{}}
	return &Controller{Client: client, Events: events, Losses: &Losses{}, Grace: 10 * time.Minute, Log: slog.New(slog.DiscardHandler)}
}

// TestUnreachableNodeIsPolled: if a node that reported the loss of a group does not answer, the controller polls it,
// because no watch announces its next answer.
func TestUnreachableNodeIsPolled(t *testing.T) {
	pv := &corev1.PersistentVolume{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: kubeclient.KindVolume},
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", Annotations: map[string]string{api.AnnotationVolumeGroupLostSince: "2026-01-02T03:04:05Z"}},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: api.DriverName, VolumeHandle: kubetest.TestVG + "/pvc-1"}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: api.TopologyKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"n"}}},
			}}}},
		},
	}
	node := &corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}},
	}
	r, _ := recordedRound(t, map[string]any{"GET /api/v1/persistentvolumes/pvc-1": pv, "GET /api/v1/nodes/n": node})
	again, err := r.checkVolume(t.Context(), "pvc-1", "n")
	if err != nil || again == 0 {
		t.Errorf("next check in %s, %v", again, err)
	}
	delete(pv.Annotations, api.AnnotationVolumeGroupLostSince)
	again, err = r.checkVolume(t.Context(), "pvc-1", "n")
	if err != nil || again != 0 {
		t.Errorf("without a note: next check in %s, %v", again, err)
	}
}

// TestReturnedVolumeGroupEndsItsLoss: the driver on a node removes all annotations of a loss at once. The owner of the claim has an event that
// says so, and a later loss of the group has its own grace period.
func TestReturnedVolumeGroupEndsItsLoss(t *testing.T) {
	pv, node := kubetest.VolumeOn("n", "data"), nodeNamed("n")
	lost, before := pv.DeepCopy(), time.Now().Add(-time.Hour)
	lost.Annotations = map[string]string{api.AnnotationVolumeGroupLostSince: "2026-01-02T03:04:05Z", api.AnnotationLostSince: "2026-01-02T03:04:06Z"}
	r, sent := recordedRound(t, map[string]any{
		"GET /api/v1/persistentvolumes/pvc-data": pv, "GET /api/v1/nodes/n": node,
		"GET /api/v1/namespaces/ns/persistentvolumeclaims/data": kubetest.Claim("data", "late", "pvc-data"),
		"POST /api/v1/namespaces/ns/events":                     &corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}},
	}, node, pv)
	key := groupLossKey("n", kubetest.TestVG)
	recorded(t, r.Losses, key, before)
	r.volumeChanged(cluster.VolumeOf(lost), cluster.VolumeOf(pv))
	worked(t, r)
	if since := recorded(t, r.Losses, key, time.Now()); since.Before(before.Add(time.Minute)) {
		t.Errorf("the next loss of the group counts from %s", since)
	}
	resolved := r.Events.Object(kubeclient.Event{About: kubeclient.AboutClaim("ns", "data", "claim-data"), Reason: api.ReasonVolumeLostResolved}, time.Now())
	if times := r.Events.Counts["ns/"+resolved.Name].Times; times != 1 {
		t.Errorf("the event %s was written %d times; requests: %q", resolved.Reason, times, sent())
	}
	requests := len(sent())
	r.volumeChanged(cluster.VolumeOf(pv), cluster.VolumeOf(pv))
	worked(t, r)
	if got := sent()[requests:]; len(got) > 0 {
		t.Errorf("a volume without annotations costs requests: %q", got)
	}
}

// worked does the steps for all objects in the queue.
func worked(t *testing.T, r *round) {
	t.Helper()
	for r.queue.Len() > 0 {
		r.next(t.Context())
	}
}

// TestEventsOfReturnedVolumes: which volumes whose annotations were removed have an event on their claim.
func TestEventsOfReturnedVolumes(t *testing.T) {
	noted := func(annotation, text string) func(*corev1.PersistentVolume, *corev1.PersistentVolumeClaim) {
		return func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) {
			pv.Annotations = map[string]string{annotation: text}
		}
	}
	nothing := func(*corev1.PersistentVolume, *corev1.PersistentVolumeClaim) {}
	for name, c := range map[string]struct {
		change func(*corev1.PersistentVolume, *corev1.PersistentVolumeClaim)
		node   *corev1.Node
		want   bool
	}{
		"back":                         {nothing, nodeNamed("n"), true},
		"the node is gone":             {nothing, nil, false},
		"the node is out of service":   {nothing, tainted(corev1.TaintNodeOutOfService), false},
		"lost again":                   {noted(api.AnnotationVolumeGroupLostSince, "2026-01-02T03:04:05Z"), nodeNamed("n"), false},
		"its policy is not yet undone": {noted(api.AnnotationReclaimPolicy, "Delete"), nodeNamed("n"), false},
		"its claim is being deleted": {func(_ *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) {
			claim.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}, nodeNamed("n"), false},
		"another claim has the name": {func(_ *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) {
			claim.UID = "another"
		}, nodeNamed("n"), false},
		"the claim names another volume": {func(_ *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) {
			claim.Spec.VolumeName = "pvc-other"
		}, nodeNamed("n"), false},
		"released": {func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) {
			pv.Status.Phase = corev1.VolumeReleased
		}, nodeNamed("n"), false},
	} {
		t.Run(name, func(t *testing.T) {
			pv, claim := kubetest.VolumeOn("n", "data"), kubetest.Claim("data", "late", "pvc-data")
			c.change(pv, claim)
			answers := map[string]any{
				"GET /api/v1/persistentvolumes/pvc-data": pv, "GET /api/v1/namespaces/ns/persistentvolumeclaims/data": claim,
				"POST /api/v1/namespaces/ns/events": &corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}},
			}
			if c.node != nil {
				c.node.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
				answers["GET /api/v1/nodes/n"] = c.node
			}
			r, sent := recordedRound(t, answers)
			if _, err := r.checkReturned(t.Context(), "pvc-data", "n"); err != nil {
				t.Fatal(err)
			}
			if got := slices.Contains(sent(), "POST /api/v1/namespaces/ns/events"); got != c.want {
				t.Errorf("an event is written: %t", got)
			}
		})
	}
}

// TestControllerWorksWithoutSnapshotAPI: while the API server cannot serve the snapshot API, the Controller works on volumes.
func TestControllerWorksWithoutSnapshotAPI(t *testing.T) {
	read := make(chan struct{})
	first := sync.OnceFunc(func() { close(read) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/apis/snapshot.storage.k8s.io/"):
			kubetest.Reply(w, http.StatusServiceUnavailable, apierrors.NewServiceUnavailable("the conversion webhook does not answer").Status())
			return
		case r.URL.Path == "/api/v1/persistentvolumes/pvc-data":
			first()
		}
		kubetest.Reply(w, http.StatusNotFound, apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path).Status())
	}))
	client := kubetest.ClientOf(t, server)
	objects := cluster.NewObjects(fake.NewClientset(kubetest.VolumeOn("gone", "data")), client, "ns", slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); objects.Run(ctx, newController(client).Run) }()
	select {
	case <-read:
	case <-time.After(wait.Limit(20 * time.Second)):
		t.Error("the volume was not checked")
	}
	if objects.Contents.IsSynced() {
		t.Error("the contents count as listed")
	}
	stop()
	<-ended
}

// TestNothingIsCheckedBeforeAllVolumesAreKnown: two volumes with one handle must not count as one because only one has been listed.
func TestNothingIsCheckedBeforeAllVolumesAreKnown(t *testing.T) {
	client, sent := kubetest.RecordedClient(t, nil)
	clientset := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, kubetest.VolumeOn("n", "data"))
	ctx, stop := context.WithCancel(t.Context())
	clientset.PrependReactor("list", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewServiceUnavailable("the API server starts")
	})
	objects := cluster.NewObjects(clientset, client, "ns", slog.New(slog.DiscardHandler))
	ended := make(chan struct{})
	go func() { defer close(ended); objects.Run(ctx) }()
	clustertest.Eventually(t, "the nodes are not listed", objects.Nodes.IsSynced)
	before := len(sent())
	again, err := newController(client).newRound(objects).check(ctx, kubeclient.ObjectKey{Kind: kubeclient.KindVolume, Key: "pvc-data"})
	if err != nil || again <= 0 || len(sent()) != before {
		t.Errorf("next check in %s, %v", again, err)
	}
	stop()
	<-ended
}

// TestRetainedContentsAreNotPolled: a retained content outlives its snapshot.
func TestRetainedContentsAreNotPolled(t *testing.T) {
	s := contentObservation{Now: time.Now(), C: &kubeclient.Content{}, Bound: &kubeclient.Snapshot{}}
	s.Bound.Namespace, s.Bound.Name = "ns", "gone"
	r, _ := recordedRound(t, nil)
	again, err := r.doContent(t.Context(), s, stepDeleteClaim)
	if err != nil || again < time.Minute {
		t.Errorf("next check in %s, %v", again, err)
	}
}

// TestNewSnapshotWithFormerNameIsIgnored: a retained content outlives its snapshot, even if another snapshot with its name
// exists. The controller neither polls for nor deletes the new one.
func TestNewSnapshotWithFormerNameIsIgnored(t *testing.T) {
	s := &kubeclient.Snapshot{}
	s.APIVersion, s.Kind = kubeclient.SnapshotVersion.String(), kubeclient.KindSnapshot
	s.Namespace, s.Name, s.UID, s.Status.Content = "ns", "nightly", "second", "b"
	c := kubetest.ContentOf("a", "first", kubetest.TestVG+"/s-1")
	c.APIVersion, c.Kind = kubeclient.SnapshotVersion.String(), kubeclient.KindContent
	c.Annotations = map[string]string{api.AnnotationLostSince: "2020-01-02T03:04:05Z"}
	const group = "/apis/snapshot.storage.k8s.io/v1"
	r, requests := recordedRound(t, map[string]any{
		"GET " + group + "/namespaces/ns/volumesnapshots/nightly": s, "GET " + group + "/volumesnapshotcontents/a": c,
	})
	r.Losses.Load(`{"node-1": "2020-01-02T03:04:05Z"}`)
	again, err := r.checkContent(t.Context(), "a", "node-1")
	if err != nil || again < time.Minute {
		t.Errorf("next check in %s, %v", again, err)
	}
	for _, request := range requests() {
		if !strings.HasPrefix(request, "GET ") {
			t.Errorf("the controller writes: %s", request)
		}
	}
}

// TestInvalidNamesAreNotRequestedAgain: the driver requests an invalid name from a tenant's claim once and does not retry.
func TestInvalidNamesAreNotRequestedAgain(t *testing.T) {
	r, requests := recordedRound(t, nil)
	for _, name := range []string{"", ".", "..", "a/b", "a%b", "../../nodes"} {
		pv, err := r.Client.Volume(t.Context(), name)
		claim, claimErr := r.Client.Claim(t.Context(), "ns", name)
		node, nodeErr := r.Client.Node(t.Context(), name)
		s, snapshotErr := r.Client.Snapshot(t.Context(), "ns", name)
		if pv != nil || err != nil || claim != nil || claimErr != nil || node != nil || nodeErr != nil || s != nil || snapshotErr != nil {
			t.Errorf("%q: %v, %v, %v, %v", name, err, claimErr, nodeErr, snapshotErr)
		}
	}
	if sent := requests(); len(sent) > 0 {
		t.Errorf("requests for it: %v", sent)
	}
}
