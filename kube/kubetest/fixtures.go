package kubetest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	corev1 "k8s.io/api/core/v1"

	storagev1 "k8s.io/api/storage/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/rest"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

func Claim(name, class, volume string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "claim-" + TypesUID(name), ResourceVersion: "1"},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: &class, VolumeName: volume},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
	if volume != "" {
		c.Status.Phase = corev1.ClaimBound
	}
	return c
}

func Class(name, provisioner string, mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
	c := &storagev1.StorageClass{
		TypeMeta:    metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass"},
		ObjectMeta:  metav1.ObjectMeta{Name: name, UID: "class-" + TypesUID(name), ResourceVersion: "1", Labels: map[string]string{"a": "label"}},
		Provisioner: provisioner,
	}
	if mode != "" {
		c.VolumeBindingMode = &mode
	}
	return c
}

// Reply answers as the API server does.
func Reply(w http.ResponseWriter, code int, body any) {
	if status, is := body.(metav1.Status); is {
		status.TypeMeta, status.Status = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, metav1.StatusFailure
		body = status
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client may have closed the connection
}

// SnapshotHandle returns the handle of the snapshot that the driver takes for a VolumeSnapshot.
func SnapshotHandle(uid string) string {
	return lvm.ID{VG: TestVG, LV: lvm.SnapshotName(api.PrefixSnapshot + uid)}.String()
}

// ContentOf returns the ready content of a snapshot ns/nightly.
func ContentOf(name, snapshotUID, handle string) *kubeclient.Content {
	c := &kubeclient.Content{}
	c.Name, c.Labels = name, map[string]string{api.LabelManagedBy: "node-1"}
	c.Spec.Driver, c.Status.ReadyToUse, c.Status.SnapshotHandle = api.DriverName, true, handle
	c.Spec.VolumeSnapshotRef.Namespace, c.Spec.VolumeSnapshotRef.Name, c.Spec.VolumeSnapshotRef.UID = "ns", "nightly", TypesUID(snapshotUID)
	return c
}

// VolumeOn returns a PersistentVolume of this driver on a node, bound to the claim ns/NAME that Claim(NAME, ..., "pvc-NAME")
// returns.
func VolumeOn(node, name string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: kubeclient.KindVolume},
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + name, UID: "volume-" + TypesUID(name), ResourceVersion: "1"},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: "late",
			ClaimRef:         &corev1.ObjectReference{Kind: kubeclient.KindClaim, Namespace: "ns", Name: name, UID: "claim-" + TypesUID(name)},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: api.DriverName, VolumeHandle: TestVG + "/pvc-" + name,
			}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: api.TopologyKey, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
			}}}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
}

// TestVG is the UUID of a volume group.
const TestVG = "AAAAAA-BBBB-CCCC-DDDD-EEEE-FFFF-GGGGGG"

func TypesUID(s string) types.UID { return types.UID(s) }

// RecordedClient returns a client of an API server that answers only these requests; an answer may be an error of package apierrors. sent returns the requests that it received.
func RecordedClient(t *testing.T, answers map[string]any) (client *kubeclient.Client, sent func() []string) {
	t.Helper()
	var mu sync.Mutex
	var requests []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		requests = append(requests, r.Method+" "+r.URL.Path)
		mu.Unlock()
		body, ok := answers[r.Method+" "+r.URL.Path]
		if !ok {
			body = apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path)
		}
		if refused, is := body.(*apierrors.StatusError); is {
			Reply(w, int(refused.ErrStatus.Code), refused.Status())
			return
		}
		Reply(w, http.StatusOK, body)
	}))
	return ClientOf(t, server), func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(requests) }
}

// Posts counts the requests that create an object.
func Posts(sent []string) (n int) {
	for _, request := range sent {
		if strings.HasPrefix(request, "POST ") {
			n++
		}
	}
	return n
}

// ClientOf returns a client of an API server that closes when the test ends.
func ClientOf(t testing.TB, server *httptest.Server) *kubeclient.Client {
	t.Helper()
	t.Cleanup(server.Close)
	client, err := kubeclient.NewClientFor(&rest.Config{Host: server.URL})
	check.Must(t, err)
	return client
}

// PodList encodes a list of pods as the API server sends it.
func PodList(t testing.TB, pods ...corev1.Pod) []byte {
	t.Helper()
	scheme := kubeclient.NewScheme()
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: pods}
	text, err := runtime.Encode(protobuf.NewSerializer(scheme, scheme), list)
	check.Must(t, err)
	return text
}

// AnswerClient returns a client of an API server with one answer to all requests.
func AnswerClient(t testing.TB, contentType string, body []byte) *kubeclient.Client {
	t.Helper()
	return ClientOf(t, httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(body) // the client may have closed the connection
	})))
}

// PodClient returns a client of an API server with these pods.
func PodClient(t testing.TB, pods ...corev1.Pod) *kubeclient.Client {
	t.Helper()
	return AnswerClient(t, runtime.ContentTypeProtobuf, PodList(t, pods...))
}
