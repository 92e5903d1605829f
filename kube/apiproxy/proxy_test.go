package apiproxy_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/apiproxy"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

// apiServer serves lists and watches of claims and PersistentVolumes in protobuf, and records the requests that it receives.
type apiServer struct {
	t      *testing.T
	claims []corev1.PersistentVolumeClaim
	events []metav1.WatchEvent
	cut    int // bytes that are missing at the end of a list
	status int // of every answer, if it is set

	volumes       []corev1.PersistentVolume
	volumeEvents  []metav1.WatchEvent
	volumesStatus int // of every answer about PersistentVolumes, if it is set

	mu    sync.Mutex
	heard []string // method, path and token
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.heard = append(s.heard, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
	s.mu.Unlock()
	switch {
	case s.status != 0:
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(s.status)
	case r.URL.Path == "/echo":
		_, _ = io.Copy(w, r.Body)
	case r.URL.Path == volumesPath:
		s.answerVolumes(w, r)
	case r.URL.Path != claims:
		w.WriteHeader(http.StatusNotFound)
	case r.URL.Query().Get("watch") != "":
		writeEvents(s.t, w, s.events)
	case !strings.Contains(r.Header.Get("Accept"), runtime.ContentTypeProtobuf):
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		must(s.t, json.NewEncoder(w).Encode(corev1.PersistentVolumeClaimList{Items: s.claims}))
	default:
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		list := &corev1.PersistentVolumeClaimList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaimList"}, Items: s.claims}
		list.ResourceVersion = "42"
		raw := encode(s.t, list)
		_, _ = w.Write(raw[:len(raw)-s.cut])
	}
}

// answerVolumes lists or watches PersistentVolumes.
func (s *apiServer) answerVolumes(w http.ResponseWriter, r *http.Request) {
	switch {
	case s.volumesStatus != 0:
		w.WriteHeader(s.volumesStatus)
	case r.URL.Query().Get("watch") != "":
		writeEvents(s.t, w, s.volumeEvents)
	default:
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		list := &corev1.PersistentVolumeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeList"}, Items: s.volumes}
		_, _ = w.Write(encode(s.t, list))
	}
}

func writeEvents(t *testing.T, w http.ResponseWriter, events []metav1.WatchEvent) {
	t.Helper()
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
	frames := protobuf.LengthDelimitedFramer.NewFrameWriter(w)
	for _, e := range events {
		raw, err := e.Marshal()
		must(t, err)
		_, err = frames.Write(raw)
		must(t, err)
	}
}

func typed(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	c.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}
	return c
}

func encode(t *testing.T, o runtime.Object) []byte {
	t.Helper()
	scheme := kubeclient.NewScheme()
	var b bytes.Buffer
	must(t, protobuf.NewSerializer(scheme, scheme).Encode(o, &b))
	return b.Bytes()
}

var must = check.Must

// start serves the proxy of node-1 in front of the API server. The proxy's configuration contains the driver's own token.
func (s *apiServer) start(t *testing.T) (url string) {
	t.Helper()
	s.t = t
	upstream := httptest.NewServer(s)
	t.Cleanup(upstream.Close)
	proxy, err := apiproxy.New(&rest.Config{Host: upstream.URL, BearerToken: "driver"}, "node-1", slog.New(slog.DiscardHandler))
	must(t, err)
	local := httptest.NewUnstartedServer(proxy)
	local.EnableHTTP2 = true
	local.TLS, err = apiproxy.ServerConfig()
	must(t, err)
	local.StartTLS()
	t.Cleanup(local.Close)
	return local.URL
}

func client(t *testing.T, url string) rest.Interface {
	t.Helper()
	c, err := kubeclient.NewClientFor(&rest.Config{Host: url, BearerToken: "sidecar", TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	must(t, err)
	return c.Core
}

const (
	claims      = "/api/v1/persistentvolumeclaims"
	volumesPath = "/api/v1/persistentvolumes"
)

func bound(name, node string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{}
	c.Namespace, c.Name, c.ResourceVersion = "ns", name, "7"
	c.Annotations = map[string]string{api.AnnotationSelectedNode: node}
	c.Spec.VolumeName = "pvc-" + name
	return c
}

// volumeOn returns the PersistentVolume of bound(name, ...) on a node.
func volumeOn(name, node string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}}
	pv.Name, pv.Spec.CSI = "pvc-"+name, &corev1.CSIPersistentVolumeSource{Driver: api.DriverName}
	pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: api.TopologyKey, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
	}}}}
	return pv
}

// cloneOf returns a claim that waits on node-1 and is a clone of source.
func cloneOf(source string) *corev1.PersistentVolumeClaim {
	c := bound("clone", "node-1")
	c.Spec.VolumeName, c.Spec.DataSource = "", &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: source}
	return c
}

// listed returns the names of the claims that a client lists.
func listed(t *testing.T, address string) (list corev1.PersistentVolumeClaimList, names []string) {
	t.Helper()
	must(t, client(t, address).Get().AbsPath(claims).Do(t.Context()).Into(&list))
	for _, c := range list.Items {
		names = append(names, c.Name)
	}
	return list, names
}

// TestList: a client gets the objects that concern its node, and the list's version.
func TestList(t *testing.T) {
	s := &apiServer{claims: []corev1.PersistentVolumeClaim{*bound("a", "node-1"), *bound("b", "node-2"), *cloneOf("b")}}
	list, names := listed(t, s.start(t))
	if want := []string{"a", "clone"}; !slices.Equal(names, want) || list.ResourceVersion != "42" {
		t.Errorf("got %q of version %q, want %q of 42", names, list.ResourceVersion, want)
	}
	if first := list.Items[0]; first.Spec.VolumeName != "pvc-a" || first.Annotations[api.AnnotationSelectedNode] != "node-1" {
		t.Errorf("the claim was changed: %+v", first)
	}
}

// TestWatch: the client gets a deletion for an object that no longer concerns the node.
func TestWatch(t *testing.T) {
	event := func(kind watch.EventType, c *corev1.PersistentVolumeClaim) metav1.WatchEvent {
		e := metav1.WatchEvent{Type: string(kind)}
		e.Object.Raw = encode(t, typed(c))
		return e
	}
	s := &apiServer{events: []metav1.WatchEvent{
		event(watch.Added, bound("a", "node-1")), event(watch.Added, bound("b", "node-2")), event(watch.Modified, bound("c", "node-2")),
		event(watch.Added, cloneOf("b")), event(watch.Modified, bound("a", "node-1")), event(watch.Deleted, bound("b", "node-2")),
		event(watch.Bookmark, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "9"}}),
	}}
	events, err := client(t, s.start(t)).Get().AbsPath(claims).Param("watch", "true").Watch(t.Context())
	must(t, err)
	defer events.Stop()
	got := []string{}
	for e := range events.ResultChan() {
		c, ok := e.Object.(*corev1.PersistentVolumeClaim)
		if !ok {
			t.Fatalf("got %+v", e)
		}
		got = append(got, string(e.Type)+" "+c.Name+" "+c.ResourceVersion)
		if e.Type == watch.Deleted && c.Name == "c" && c.Spec.VolumeName != "" {
			t.Errorf("the client needs no more than the name: %+v", c)
		}
	}
	want := []string{"ADDED a 7", "DELETED c 7", "ADDED clone 7", "MODIFIED a 7", "DELETED b 7", "BOOKMARK  9"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestTokens: for every request the proxy sends the client's token and never the driver's.
func TestTokens(t *testing.T) {
	s := &apiServer{}
	address := s.start(t)
	insecure := rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	transport, err := rest.TransportFor(&insecure)
	must(t, err)
	send := func(path string, header http.Header) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+path, http.NoBody)
		must(t, err)
		r.Header = header
		answer, err := transport.RoundTrip(r)
		must(t, err)
		must(t, answer.Body.Close())
		return answer.StatusCode
	}
	for _, path := range []string{"/echo", claims, "/api/v1/namespaces/nodelvm-system/secrets"} {
		if code := send(path, http.Header{}); code != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d, want %d", path, code, http.StatusUnauthorized)
		}
	}
	if len(s.heard) > 0 {
		t.Errorf("requests without a token reached the API server: %q", s.heard)
	}
	for _, path := range []string{"/echo", claims} {
		if code := send(path, http.Header{"Authorization": {"Bearer mine"}, "Accept": {runtime.ContentTypeProtobuf}}); code != http.StatusOK {
			t.Errorf("%s with a token: %d", path, code)
		}
	}
	if len(s.heard) != 3 || slices.ContainsFunc(s.heard, func(line string) bool { return !strings.HasSuffix(line, " Bearer mine") }) {
		t.Errorf("the API server saw %q, want three requests with the client's token", s.heard)
	}
}

// TestAnswersThatAreNoList: errors and other encodings reach the client unchanged, and a truncated list is an error.
func TestAnswersThatAreNoList(t *testing.T) {
	s := &apiServer{claims: []corev1.PersistentVolumeClaim{*bound("a", "node-2"), *bound("b", "node-2")}}
	address := s.start(t)
	var list corev1.PersistentVolumeClaimList
	must(t, client(t, address).Get().AbsPath(claims).SetHeader("Accept", runtime.ContentTypeJSON).Do(t.Context()).Into(&list))
	if len(list.Items) != 2 {
		t.Errorf("a client of JSON got %d claims, want all 2", len(list.Items))
	}
	for _, cut := range []int{1, 20, 150} {
		s.cut = cut
		if err := client(t, address).Get().AbsPath(claims).Do(t.Context()).Into(&corev1.PersistentVolumeClaimList{}); err == nil {
			t.Errorf("a list that lacks %d bytes was accepted", cut)
		}
	}
	s.status = http.StatusGone
	code := 0
	client(t, address).Get().AbsPath(claims).MaxRetries(0).Do(t.Context()).StatusCode(&code)
	if code != http.StatusGone {
		t.Errorf("got status %d, want %d", code, http.StatusGone)
	}
}

// TestUpgrade: the proxy refuses to change the protocol, as kubectl exec requests: no sidecar needs that.
func TestUpgrade(t *testing.T) {
	s := &apiServer{}
	to, err := url.Parse(s.start(t))
	must(t, err)
	w := httptest.NewRecorder()
	proxy, err := apiproxy.New(&rest.Config{Host: to.String()}, "node-1", slog.New(slog.DiscardHandler))
	must(t, err)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/namespaces/x/pods/y/exec", http.NoBody)
	r.Header = http.Header{"Authorization": {"Bearer mine"}, "Upgrade": {"websocket"}, "Connection": {"Upgrade"}}
	proxy.ServeHTTP(w, r)
	if w.Code != http.StatusBadRequest || len(s.heard) > 0 {
		t.Errorf("got %d; the API server saw %q", w.Code, s.heard)
	}
}
