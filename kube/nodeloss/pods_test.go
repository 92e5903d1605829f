package nodeloss

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
)

// lostInstance is what the API server knows of a database's pod db-1, whose node n is gone: its three claims, of a class that says
// release, and their volumes.
type lostInstance struct {
	pod     *corev1.Pod
	volumes map[string]*corev1.PersistentVolume // by claim
	answers map[string]any
}

// newLostInstance may have more volumes, which the pod uses too.
func newLostInstance(t *testing.T, more ...string) (*lostInstance, *round, func() []string) {
	t.Helper()
	class := kubetest.Class("late", api.DriverName, storagev1.VolumeBindingWaitForFirstConsumer)
	class.Annotations = map[string]string{api.AnnotationOnNodeLoss: api.OnNodeLossRelease}
	i := &lostInstance{volumes: map[string]*corev1.PersistentVolume{}, answers: map[string]any{
		"GET /apis/storage.k8s.io/v1/storageclasses/late": class, "DELETE /api/v1/namespaces/ns/pods/db-1": &metav1.Status{},
		"POST /api/v1/namespaces/ns/events":      &corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}},
		"POST /api/v1/namespaces/default/events": &corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}},
	}}
	i.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db-1", UID: "pod-1"}}
	i.pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Cluster", Name: "db", UID: "cluster", Controller: ptr.To(true)}}
	var list []runtime.Object
	for _, name := range append([]string{"data", "wal", "tables"}, more...) {
		pv := kubetest.VolumeOn("n", name)
		pv.Annotations = map[string]string{api.AnnotationLostSince: "2020-01-02T03:04:05Z"}
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		i.volumes[name] = pv
		list = append(list, pv)
		i.answers["GET /api/v1/persistentvolumes/"+pv.Name], i.answers["PATCH /api/v1/persistentvolumes/"+pv.Name] = pv, pv
		i.answers["GET /api/v1/namespaces/ns/persistentvolumeclaims/"+name] = kubetest.Claim(name, "late", pv.Name)
		i.answers["DELETE /api/v1/namespaces/ns/persistentvolumeclaims/"+name] = &metav1.Status{}
		i.pod.Spec.Volumes = append(i.pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
	}
	i.answers["GET /api/v1/namespaces/ns/pods"] = &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{*i.pod}}
	r, sent := recordedRound(t, i.answers, list...)
	r.began, r.Grace = time.Now().Add(-time.Hour), time.Minute
	r.Losses.Load(`{"n": "2020-01-02T03:04:05Z"}`)
	return i, r, sent
}

// deletions returns the names of the deleted objects, in order.
func deletions(sent []string) (names []string) {
	for _, request := range sent {
		if path, is := strings.CutPrefix(request, "DELETE "); is {
			names = append(names, path[strings.LastIndex(path, "/")+1:])
		}
	}
	return names
}

// TestClaimsOfAPodAreDeletedTogether: the controller deletes all claims of a pod, and then the pod: an operator that sees the pod go sees no
// claim that is about to go.
func TestClaimsOfAPodAreDeletedTogether(t *testing.T) {
	_, r, sent := newLostInstance(t)
	if _, err := r.checkVolume(t.Context(), "pvc-wal", "n"); err != nil {
		t.Fatal(err)
	}
	got := deletions(sent())
	if len(got) != 4 || got[3] != "db-1" || !slices.Contains(got, "data") || !slices.Contains(got, "wal") || !slices.Contains(got, "tables") {
		t.Errorf("deleted %q", got)
	}
}

// TestClaimsOfAPodWaitForEachOther: the controller recorded the loss of one volume later.
func TestClaimsOfAPodWaitForEachOther(t *testing.T) {
	i, r, sent := newLostInstance(t)
	i.volumes["tables"].Annotations[api.AnnotationLostSince] = time.Now().UTC().Truncate(time.Second).Add(-30 * time.Second).Format(time.RFC3339)
	again, err := r.checkVolume(t.Context(), "pvc-wal", "n")
	if got := deletions(sent()); err != nil || len(got) > 0 || again < 20*time.Second || again > time.Minute {
		t.Errorf("deleted %q, %v; next check in %s", got, err, again)
	}
	i.volumes["tables"].Annotations[api.AnnotationLostSince] = "not a record"
	if _, err := r.checkVolume(t.Context(), "pvc-wal", "n"); err != nil || len(deletions(sent())) > 0 {
		t.Errorf("before the record of another volume: deleted %q, %v", deletions(sent()), err)
	}
}

// TestClaimsWaitForOneThatWasMoving: the controller never deletes a claim whose volume was moving. It asks the API server rarely for the
// other claims of its pod, and says why it keeps them.
func TestClaimsWaitForOneThatWasMoving(t *testing.T) {
	for _, answer := range []string{`{"confirmed": "h"}`, `{"done": 1, "total": 2}`} {
		i, r, sent := newLostInstance(t)
		i.volumes["tables"].Annotations[api.AnnotationMovingTo] = "m"
		i.volumes["tables"].Annotations[api.AnnotationMoveAnswer] = answer
		again, err := r.checkVolume(t.Context(), "pvc-wal", "n")
		if got := deletions(sent()); err != nil || len(got) > 0 || again < time.Minute {
			t.Errorf("%s: deleted %q, %v; next check in %s", answer, got, err, again)
		}
		if kubetest.Posts(sent()) != 1 {
			t.Errorf("%s: no event: %q", answer, sent())
		}
	}
}

// TestOnlyDueClaimsOfAPodAreDeleted: a claim of another class, on another node, or without a volume of this driver stays.
func TestOnlyDueClaimsOfAPodAreDeleted(t *testing.T) {
	for name, change := range map[string]func(i *lostInstance){
		"another class": func(i *lostInstance) {
			i.volumes["tables"].Spec.StorageClassName = "kept"
			i.answers["GET /api/v1/namespaces/ns/persistentvolumeclaims/tables"] = kubetest.Claim("tables", "kept", "pvc-tables")
			i.answers["GET /apis/storage.k8s.io/v1/storageclasses/kept"] = kubetest.Class("kept", api.DriverName, storagev1.VolumeBindingWaitForFirstConsumer)
		},
		"another node": func(i *lostInstance) {
			i.volumes["tables"].Spec.NodeAffinity = kubetest.VolumeOn("m", "tables").Spec.NodeAffinity
		},
		"another claim has its name": func(i *lostInstance) { i.volumes["tables"].Spec.ClaimRef.UID = "former" },
		"its volume is deleted":      func(i *lostInstance) { delete(i.answers, "GET /api/v1/persistentvolumes/pvc-tables") },
		"it is being deleted": func(i *lostInstance) {
			claim := kubetest.Claim("tables", "late", "pvc-tables")
			claim.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			i.answers["GET /api/v1/namespaces/ns/persistentvolumeclaims/tables"] = claim
		},
	} {
		i, r, sent := newLostInstance(t)
		change(i)
		if _, err := r.checkVolume(t.Context(), "pvc-wal", "n"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := deletions(sent()); len(got) != 3 || slices.Contains(got, "tables") || got[2] != "db-1" {
			t.Errorf("%s: deleted %q", name, got)
		}
	}
}

// TestClaimsReleasedTogetherAreBounded: a pod may name thousands of claims.
func TestClaimsReleasedTogetherAreBounded(t *testing.T) {
	var many []string
	for n := range 3 * togetherMost {
		many = append(many, fmt.Sprintf("many-%d", n))
	}
	_, r, sent := newLostInstance(t, many...)
	if _, err := r.checkVolume(t.Context(), "pvc-wal", "n"); err != nil {
		t.Fatal(err)
	}
	if got := deletions(sent()); len(got) != togetherMost+1 || got[togetherMost] != "db-1" {
		t.Errorf("%d deletions: %q", len(got), got)
	}
}

// TestPodOfADeletedClaimIsDeleted: an operator created a pod for a claim that the controller has deleted, before it saw the deletion. The
// controller deletes the pod once; it reports one without a controller, and one of a Job, which would create only the pod again.
func TestPodOfADeletedClaimIsDeleted(t *testing.T) {
	for name, test := range map[string]struct {
		change func(i *lostInstance)
		want   []string // deletions
		event  string   // on the pod
	}{
		"an operator's pod": {func(*lostInstance) {}, []string{"db-1"}, api.ReasonPodDeleted},
		"a pod by itself":   {func(i *lostInstance) { i.pod.OwnerReferences = nil }, nil, api.ReasonClaimDeleted},
		"a Job's pod": {func(i *lostInstance) {
			i.pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "db-1-join", UID: "job", Controller: ptr.To(true)}}
		}, nil, api.ReasonClaimDeleted},
		"its claim exists again": {func(i *lostInstance) {
			again := kubetest.Claim("data", "late", "")
			again.UID = "again"
			i.answers["GET /api/v1/namespaces/ns/persistentvolumeclaims/data"] = again
		}, nil, ""},
		"its user deleted the claim": {func(i *lostInstance) { delete(i.volumes["data"].Annotations, api.AnnotationReclaimPolicy) }, nil, ""},
		"of a volume that was to be deleted": {func(i *lostInstance) {
			i.volumes["data"].Annotations[api.AnnotationReclaimPolicy] = "Delete"
		}, []string{"db-1", "pvc-data"}, api.ReasonPodDeleted},
		"the pod has a node":        {func(i *lostInstance) { i.pod.Spec.NodeName = "m" }, nil, ""},
		"the pod is being deleted":  {func(i *lostInstance) { i.pod.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, nil, ""},
		"the pod uses other claims": {func(i *lostInstance) { i.pod.Spec.Volumes = i.pod.Spec.Volumes[1:] }, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			i, r, sent := newLostInstance(t)
			pv := i.volumes["data"]
			pv.Status.Phase, pv.Status.LastPhaseTransitionTime = corev1.VolumeReleased, ptr.To(metav1.NewTime(time.Now().Add(-podsAppear)))
			i.answers["DELETE /api/v1/persistentvolumes/pvc-data"] = &metav1.Status{}
			delete(i.answers, "GET /api/v1/namespaces/ns/persistentvolumeclaims/data")
			pv.Annotations[api.AnnotationReclaimPolicy] = "Retain"
			test.change(i)
			i.answers["GET /api/v1/namespaces/ns/pods"].(*corev1.PodList).Items = []corev1.Pod{*i.pod}
			if _, err := r.checkVolume(t.Context(), "pvc-data", "n"); err != nil {
				t.Fatal(err)
			}
			requests := sent()
			if got := deletions(requests); !slices.Equal(got, test.want) {
				t.Errorf("deleted %q, want %q", got, test.want)
			}
			slices.Reverse(requests)
			pods, claim := slices.Index(requests, "GET /api/v1/namespaces/ns/pods"), slices.Index(requests, "GET /api/v1/namespaces/ns/persistentvolumeclaims/data")
			if pods >= 0 && pods < claim {
				t.Error("it reads the claim before the pods: an operator may create both in between")
			}
			about := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "ns", Name: "db-1", UID: "pod-1"}
			for _, reason := range []string{api.ReasonPodDeleted, api.ReasonClaimDeleted} {
				event := r.Events.Object(kubeclient.Event{About: about, Reason: reason}, time.Now())
				if got := r.Events.Counts["ns/"+event.Name].Times > 0; got != (reason == test.event) {
					t.Errorf("event %s on the pod: %t", reason, got)
				}
			}
		})
	}
}

// TestPodOfADeletedClaimIsDeletedAfterTheReturn: the node is back before the controller could delete the pod, and no other controller would.
func TestPodOfADeletedClaimIsDeletedAfterTheReturn(t *testing.T) {
	for name, note := range map[string]string{"policy Delete": "Delete", "policy Retain": "Retain"} {
		i, r, sent := newLostInstance(t)
		i.answers["GET /api/v1/nodes/n"] = nodeNamed("n")
		pv := i.volumes["data"]
		pv.Status.Phase, pv.Status.LastPhaseTransitionTime = corev1.VolumeReleased, ptr.To(metav1.Now())
		pv.Annotations[api.AnnotationReclaimPolicy] = note
		delete(i.answers, "GET /api/v1/namespaces/ns/persistentvolumeclaims/data")
		again, err := r.checkVolume(t.Context(), "pvc-data", "n")
		if err != nil || again != checkAgain || slices.ContainsFunc(sent(), func(request string) bool { return !strings.HasPrefix(request, "GET ") }) {
			t.Errorf("%s: at once: next check in %s, %v; requests %q", name, again, err, sent())
		}
		pv.Status.LastPhaseTransitionTime = ptr.To(metav1.NewTime(time.Now().Add(-podsAppear)))
		if _, err := r.checkVolume(t.Context(), "pvc-data", "n"); err != nil || !slices.Equal(deletions(sent()), []string{"db-1"}) {
			t.Errorf("%s: deleted %q, %v", name, deletions(sent()), err)
		}
	}
}

// TestVolumeMadeAvailable: an admin has made the volume of a deleted claim available again. When its node is back, the controller deletes the pod that
// waits for the claim, and removes its annotations; the reclaim policy is not changed.
func TestVolumeMadeAvailable(t *testing.T) {
	for name, change := range map[string]func(*corev1.PersistentVolume){
		"for the same claim": func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.UID = "" },
		"for any claim":      func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef = nil },
	} {
		i, r, sent := newLostInstance(t)
		i.answers["GET /api/v1/nodes/n"] = nodeNamed("n")
		pv := i.volumes["data"]
		pv.Annotations[api.AnnotationReclaimPolicy] = "Delete"
		pv.Status.Phase, pv.Status.LastPhaseTransitionTime = corev1.VolumeAvailable, ptr.To(metav1.NewTime(time.Now().Add(-podsAppear)))
		change(pv)
		delete(i.answers, "GET /api/v1/namespaces/ns/persistentvolumeclaims/data")
		again, err := r.checkVolume(t.Context(), "pvc-data", "n")
		requests := sent()
		if err != nil || again != 0 || !slices.Contains(requests, "PATCH /api/v1/persistentvolumes/pvc-data") || slices.Contains(requests, "POST /api/v1/namespaces/default/events") {
			t.Errorf("%s: next check in %s, %v; requests %q", name, again, err, requests)
		}
		if got := slices.Equal(deletions(requests), []string{"db-1"}); got != (pv.Spec.ClaimRef != nil) {
			t.Errorf("%s: deleted %q", name, deletions(requests))
		}
	}
}

// TestPolicyIsRecorded: before it deletes a claim, the controller records the volume's policy, unless one is recorded.
func TestPolicyIsRecorded(t *testing.T) {
	for _, test := range []struct {
		policy corev1.PersistentVolumeReclaimPolicy
		note   string
		writes bool
	}{{"Delete", "", true}, {"Retain", "", true}, {"Retain", "Delete", false}, {"Retain", "Retain", false}} {
		i, r, sent := newLostInstance(t)
		for _, pv := range i.volumes {
			pv.Spec.PersistentVolumeReclaimPolicy, pv.Annotations[api.AnnotationReclaimPolicy] = test.policy, test.note
		}
		if _, err := r.checkVolume(t.Context(), "pvc-data", "n"); err != nil {
			t.Fatal(err)
		}
		requests := sent()
		writes, deletes := slices.Index(requests, "PATCH /api/v1/persistentvolumes/pvc-data"), slices.Index(requests, "DELETE /api/v1/namespaces/ns/persistentvolumeclaims/data")
		if writes >= 0 != test.writes || deletes < writes || deletes < 0 {
			t.Errorf("policy %s, recorded %q: requests %q", test.policy, test.note, requests)
		}
	}
}

// TestWhatIsSaidOfThePolicy: the record of the policy is there from the deletion of the claim until the volume is abandoned, and only a volume that
// still has its claim gets the policy Delete again.
func TestWhatIsSaidOfThePolicy(t *testing.T) {
	claim := kubetest.Claim("data", "late", "pvc-data")
	for name, test := range map[string]struct {
		policy, note string
		do           func(*round, observation) error
		want         string // in the request
	}{
		"before the deletion, Delete": {"Delete", "", func(r *round, s observation) error { s.Claim = claim; return r.deleteClaim(t.Context(), s) }, `"original-reclaim-policy":"Delete" "persistentVolumeReclaimPolicy":"Retain"`},
		"before the deletion, Retain": {"Retain", "", func(r *round, s observation) error { s.Claim = claim; return r.deleteClaim(t.Context(), s) }, `"original-reclaim-policy":"Retain" "persistentVolumeReclaimPolicy":"Retain"`},
		"abandoned":                   {"Retain", "Retain", func(r *round, s observation) error { return r.abandon(t.Context(), s) }, `"original-reclaim-policy":null`},
		"back, with its claim, Delete": {"Retain", "Delete", func(r *round, s observation) error {
			s.Claim = claim
			_, err := r.restoreVolume(t.Context(), s)
			return err
		},
			`"original-reclaim-policy":null "persistentVolumeReclaimPolicy":"Delete"`},
		"back, with its claim, Retain": {"Retain", "Retain", func(r *round, s observation) error {
			s.Claim = claim
			_, err := r.restoreVolume(t.Context(), s)
			return err
		}, `"original-reclaim-policy":null`},
		"made available, Delete": {"Retain", "Delete", func(r *round, s observation) error {
			s.Pv.Spec.ClaimRef = nil
			_, err := r.restoreVolume(t.Context(), s)
			return err
		},
			`"original-reclaim-policy":null`},
	} {
		var sent []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			if body, _ := io.ReadAll(request.Body); request.Method == http.MethodPatch {
				sent = append(sent, ofPolicy.FindAllString(string(body), -1)...)
			}
			kubetest.Reply(w, http.StatusOK, &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}})
		}))
		pv := kubetest.VolumeOn("n", "data")
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimPolicy(test.policy)
		if test.note != "" {
			pv.Annotations = map[string]string{api.AnnotationReclaimPolicy: test.note}
		}
		_ = test.do(newController(kubetest.ClientOf(t, server)).newRound(nil), observation{Now: time.Now(), Pv: pv}) // what matters is the request
		if got := strings.ReplaceAll(strings.Join(sent, " "), "nodelvm.io/", ""); got != test.want {
			t.Errorf("%s: sent %s, want %s", name, got, test.want)
		}
	}
}

// ofPolicy matches what a request says of the reclaim policy.
var ofPolicy = regexp.MustCompile(`"(nodelvm.io/original-reclaim-policy|persistentVolumeReclaimPolicy)":("\w+"|null)`)

// TestReleasedVolumeWaitsForLatePods: an operator whose watch is late may create a pod for the deleted claim in a moment.
func TestReleasedVolumeWaitsForLatePods(t *testing.T) {
	i, r, sent := newLostInstance(t)
	pv := i.volumes["data"]
	pv.Status.Phase, pv.Status.LastPhaseTransitionTime = corev1.VolumeReleased, ptr.To(metav1.Now())
	delete(i.answers, "GET /api/v1/namespaces/ns/persistentvolumeclaims/data")
	again, err := r.checkVolume(t.Context(), "pvc-data", "n")
	if err != nil || again != checkAgain || slices.ContainsFunc(sent(), func(request string) bool { return !strings.HasPrefix(request, "GET ") }) {
		t.Errorf("next check in %s, %v; requests %q", again, err, sent())
	}
}

// TestPodsAreReadInPart: of a pod the controller reads what it needs, and it fails if a pod may use a claim that it cannot read.
func TestPodsAreReadInPart(t *testing.T) {
	pod := func(name string, volume string) corev1.Pod {
		owner := metav1.OwnerReference{Kind: "ReplicaSet", Name: "web", UID: "owner", Controller: ptr.To(true)}
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid", ResourceVersion: "7", OwnerReferences: []metav1.OwnerReference{owner}, DeletionTimestamp: ptr.To(metav1.Unix(1700000000, 0))},
			Spec: corev1.PodSpec{NodeName: "n", Volumes: []corev1.Volume{
				{Name: volume, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
				{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
			}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}
	}
	read := func(pods ...corev1.Pod) ([]corev1.Pod, error) {
		pods[0].Annotations = map[string]string{"long": strings.Repeat("x", 1<<20)}
		r := newController(kubetest.PodClient(t, pods...)).newRound(nil)
		return r.pods(t.Context(), "ns", func(pod *corev1.Pod) bool { return pod.Name == "web" })
	}
	got, err := read(pod("first", "v"), pod("web", "v"))
	if want := pod("web", "v"); err != nil || len(got) != 1 || !apiequality.Semantic.DeepEqual(got[0], want) {
		t.Errorf("read %+v, %v; want %+v", got, err, want)
	}
	if got, err := read(pod("first", "v"), pod("large", strings.Repeat("v", api.MaxObject))); err == nil {
		t.Errorf("with a pod that is not read: %+v", got)
	}
}
