package podlist

import (
	"bytes"
	"io"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/nodelvm/nodelvm/api"
)

var someFields = Fields{1: {1: nil, 5: nil}, 2: {1: {1: nil, 2: {10: nil}}}} // name, UID, names of volumes and claims

func podOf(name string, claims ...string) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "1", Annotations: map[string]string{"long": strings.Repeat("x", 2*api.MaxObject)}}}
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	}
	return pod
}

func encoded(t testing.TB, pods ...corev1.Pod) []byte {
	t.Helper()
	scheme := clientgoscheme.Scheme
	text, err := runtime.Encode(protobuf.NewSerializer(scheme, scheme), &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: pods})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestRead: other fields than the wanted ones cost nothing, and a pod with too long wanted ones is left out.
func TestRead(t *testing.T) {
	var names []string
	leftOut, err := Read(bytes.NewReader(encoded(t, podOf("a", "x", "y"), podOf("b", strings.Repeat("z", api.MaxObject)), podOf("c"))), someFields, func(pod *corev1.Pod) {
		names = append(names, pod.Name)
		if pod.UID != "1" || len(pod.Annotations) > 0 {
			t.Errorf("%+v", pod)
		}
	})
	if err != nil || leftOut != 1 || !reflect.DeepEqual(names, []string{"a", "c"}) {
		t.Errorf("%q, %d left out, %v", names, leftOut, err)
	}
}

// FuzzRead: Read returns the same as client-go for any input, or refuses it.
func FuzzRead(f *testing.F) {
	f.Add(encoded(f, podOf("a", "x"), podOf("b")))
	f.Add(encoded(f))
	f.Add([]byte(magic + "\x12\xff\xff\xff\xff\x0f"))
	f.Add([]byte(`{"items": [{"metadata": {"name": "a"}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var whole corev1.PodList
		var unknown runtime.Unknown
		known := len(body) > 4 && unknown.Unmarshal(body[4:]) == nil && whole.Unmarshal(unknown.Raw) == nil
		var read []corev1.Pod
		_, err := Read(bytes.NewReader(body), someFields, func(pod *corev1.Pod) { read = append(read, *pod) })
		if err != nil || !bytes.HasPrefix(body, []byte(magic)) || !known || len(read) != len(whole.Items) {
			return // invalid, or with repeated fields, some of which client-go merges
		}
		for i := range read {
			if got, want := read[i], whole.Items[i]; got.Name != want.Name || got.UID != want.UID || len(got.Spec.Volumes) != len(want.Spec.Volumes) {
				t.Errorf("pod %d is read as %+v, and is %+v", i, got, want)
			}
		}
	})
}

// slowReader returns one byte at a time, as a network may.
type slowReader struct{ r io.Reader }

func (s slowReader) Read(p []byte) (int, error) { return s.r.Read(p[:min(1, len(p))]) }

func TestSlowConnection(t *testing.T) {
	n := 0
	_, err := Read(slowReader{bytes.NewReader(encoded(t, podOf("a", "x"), podOf("b")))}, someFields, func(*corev1.Pod) { n++ })
	if err != nil || n != 2 {
		t.Errorf("%d pods, %v", n, err)
	}
}
