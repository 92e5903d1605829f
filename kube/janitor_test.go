package kube

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// roundOn is a janitor's round whose API server answers these requests ("METHOD PATH"), and others with NotFound.
func roundOn(t *testing.T, answers map[string]any) *janitorRound {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, ok := answers[r.Method+" "+r.URL.Path]; ok {
			reply(w, http.StatusOK, body)
			return
		}
		reply(w, http.StatusNotFound, apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path).Status())
	}))
	t.Cleanup(server.Close)
	client, err := NewClientFor(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return NewJanitor(JanitorConfig{Client: client, Grace: 10 * time.Minute}).newRound()
}

// TestSilentNodesAreLookedAtAgain: no watch brings that a node speaks again which has said that a group of its is lost.
func TestSilentNodesAreLookedAtAgain(t *testing.T) {
	pv := &corev1.PersistentVolume{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: kindVolume},
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", Annotations: map[string]string{annGroupLost: "2026-01-02T03:04:05Z"}},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: DriverName}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: topologyKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"n"}}},
			}}}},
		},
	}
	node := &corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}},
	}
	r := roundOn(t, map[string]any{"GET /api/v1/persistentvolumes/pvc-1": pv, "GET /api/v1/nodes/n": node})
	again, err := r.lookAtVolume(t.Context(), "pvc-1", "n")
	if err != nil || again == 0 {
		t.Errorf("it is looked at again in %s, %v", again, err)
	}
	delete(pv.Annotations, annGroupLost)
	again, err = r.lookAtVolume(t.Context(), "pvc-1", "n")
	if err != nil || again != 0 {
		t.Errorf("one that nothing is noted of is looked at again in %s, %v", again, err)
	}
}

// TestRetainedContentsAreNotPolled: the content of a snapshot that is deleted stays, if that is its policy.
func TestRetainedContentsAreNotPolled(t *testing.T) {
	s := contentSight{now: time.Now(), c: &content{}}
	s.c.Spec.VolumeSnapshotRef.Namespace, s.c.Spec.VolumeSnapshotRef.Name = "ns", "gone"
	again, err := roundOn(t, nil).doContent(t.Context(), s, stepDeleteClaim)
	if err != nil || again < time.Minute {
		t.Errorf("it is looked at again in %s, %v", again, err)
	}
}

// TestAnotherSnapshotOfTheNameIsLeftAlone: of a snapshot that was made anew under its name, the content of the first stays
// if that is its policy. That the new one is another is no reason to ask again and again.
func TestAnotherSnapshotOfTheNameIsLeftAlone(t *testing.T) {
	deletions := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		deletions++ // the API server answers thus where the UID of the precondition is not the object's
		reply(w, http.StatusConflict, apierrors.NewConflict(schema.GroupResource{Resource: "volumesnapshots"}, "nightly", nil).Status())
	}))
	t.Cleanup(server.Close)
	client, err := NewClientFor(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	r := NewJanitor(JanitorConfig{Client: client, Grace: 10 * time.Minute}).newRound()
	s := contentSight{now: time.Now(), c: &content{}}
	s.c.Spec.VolumeSnapshotRef.Namespace, s.c.Spec.VolumeSnapshotRef.Name, s.c.Spec.VolumeSnapshotRef.UID = "ns", "nightly", "first"
	again, err := r.doContent(t.Context(), s, stepDeleteClaim)
	if err != nil || again < time.Minute || deletions != 1 {
		t.Errorf("after %d deletions it is looked at again in %s, %v", deletions, again, err)
	}
}
