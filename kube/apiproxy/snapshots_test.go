package apiproxy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/nodelvm/nodelvm/kube/apiproxy"
)

// snapshotAPI answers all requests with one text, as the API server encodes VolumeSnapshots.
type snapshotAPI struct {
	status int // 200 if it is not set
	answer string
}

func (s *snapshotAPI) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	if s.status != 0 {
		w.WriteHeader(s.status)
	}
	_, _ = io.WriteString(w, s.answer)
}

// start serves the proxy before the API server, and returns a client of its VolumeSnapshots.
func (s *snapshotAPI) start(t *testing.T) dynamic.NamespaceableResourceInterface {
	t.Helper()
	upstream := httptest.NewServer(s)
	t.Cleanup(upstream.Close)
	proxy, err := apiproxy.New(&rest.Config{Host: upstream.URL}, "node-1", slog.New(slog.DiscardHandler))
	must(t, err)
	local := httptest.NewServer(withToken(proxy))
	t.Cleanup(local.Close)
	client, err := dynamic.NewForConfig(&rest.Config{Host: local.URL, QPS: -1})
	must(t, err)
	return client.Resource(schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"})
}

func withToken(proxy http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer mine")
		proxy.ServeHTTP(w, r)
	})
}

func snapshot(name string, finalizers ...string) string {
	list, _ := json.Marshal(finalizers) // of strings: no error
	return fmt.Sprintf(`{"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshot","metadata":{"name":%q,"namespace":"ns","resourceVersion":"7","finalizers":%s},
		"spec":{"source":{"persistentVolumeClaimName":"<data>"}},"status":{"readyToUse":true}}`, name, list)
}

const (
	protected   = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"
	boundBy     = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection"
	listOfThese = `{"apiVersion":"snapshot.storage.k8s.io/v1","items":[%s],"kind":"VolumeSnapshotList","metadata":{"continue":"next","remainingItemCount":5,"resourceVersion":"42"}}`
)

// TestSnapshotList: a client gets the VolumeSnapshots that have csi-provisioner's finalizer, unchanged, and what the list says of itself.
func TestSnapshotList(t *testing.T) {
	for name, test := range map[string]struct {
		items string
		want  []string
	}{
		"none":       {"", []string{}},
		"no such":    {snapshot("a", boundBy), []string{}},
		"some":       {snapshot("a") + "," + snapshot("b", protected) + "," + snapshot("c", boundBy) + "," + snapshot("d", boundBy, protected), []string{"b", "d"}},
		"at the end": {snapshot("a", protected) + "," + snapshot("b"), []string{"a"}},
	} {
		s := &snapshotAPI{answer: fmt.Sprintf(listOfThese, test.items)}
		list, err := s.start(t).List(t.Context(), metav1.ListOptions{})
		must(t, err)
		got := []string{}
		for _, item := range list.Items {
			got = append(got, item.GetName())
			if claim, _, _ := unstructured.NestedString(item.Object, "spec", "source", "persistentVolumeClaimName"); claim != "<data>" || item.GetResourceVersion() != "7" {
				t.Errorf("%s: the VolumeSnapshot was changed: %v", name, item.Object)
			}
		}
		if !slices.Equal(got, test.want) || list.GetResourceVersion() != "42" || list.GetContinue() != "next" || *list.GetRemainingItemCount() != 5 {
			t.Errorf("%s: got %q in %v, want %q", name, got, list.Object, test.want)
		}
	}
}

// TestSnapshotListIsIncomplete: a list that is cut short is an error, wherever its end is.
func TestSnapshotListIsIncomplete(t *testing.T) {
	whole := fmt.Sprintf(listOfThese, snapshot("a")+","+snapshot("b", protected))
	s := &snapshotAPI{}
	client := s.start(t)
	for n := range len(whole) {
		s.answer = whole[:n]
		if list, err := client.List(t.Context(), metav1.ListOptions{}); err == nil {
			t.Fatalf("a list of %d of %d bytes was accepted: %v", n, len(whole), list)
		}
	}
	for _, answer := range []string{`[]`, `{"items":{}}`, `{"items":["a"]}`, `{"items":[{"metadata":1}]}`} {
		s.answer = answer
		if list, err := client.List(t.Context(), metav1.ListOptions{}); err == nil {
			t.Errorf("the list %s was accepted: %v", answer, list)
		}
	}
}

// TestSnapshotWatch: a VolumeSnapshot that loses the finalizer is deleted for the client.
func TestSnapshotWatch(t *testing.T) {
	event := func(kind, object string) string { return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", kind, object) }
	const bookmark = `{"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshot","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}`
	s := &snapshotAPI{answer: event("ADDED", snapshot("a", boundBy)) + event("ADDED", snapshot("b", protected)) + event("BOOKMARK", bookmark) +
		event("MODIFIED", snapshot("a", boundBy, protected)) + event("MODIFIED", snapshot("a", boundBy)) + event("DELETED", snapshot("c", boundBy)) +
		event("ERROR", `{"kind":"Status","apiVersion":"v1","status":"Failure","code":410}`)}
	events, err := s.start(t).Watch(t.Context(), metav1.ListOptions{})
	must(t, err)
	defer events.Stop()
	got := []string{}
	for e := range events.ResultChan() {
		line := string(e.Type)
		if o, ok := e.Object.(*unstructured.Unstructured); ok {
			line += " " + o.GetKind() + " " + o.GetName() + " " + o.GetResourceVersion()
			if _, whole := o.Object["spec"]; whole != (e.Type == "ADDED" || e.Type == "MODIFIED" || o.GetName() == "c") {
				t.Errorf("%s: %v", line, o.Object)
			}
		}
		got = append(got, line)
	}
	want := []string{
		"ADDED VolumeSnapshot b 7", "BOOKMARK VolumeSnapshot  9", "MODIFIED VolumeSnapshot a 7", "DELETED VolumeSnapshot a 7", "DELETED VolumeSnapshot c 7", "ERROR",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestOtherSnapshotAnswers: single VolumeSnapshots, tables and errors reach the client unchanged.
func TestOtherSnapshotAnswers(t *testing.T) {
	s := &snapshotAPI{answer: snapshot("a")}
	client := s.start(t)
	one, err := client.Namespace("ns").Get(t.Context(), "a", metav1.GetOptions{})
	must(t, err)
	if one.GetName() != "a" {
		t.Errorf("got %v", one.Object)
	}
	s.answer = fmt.Sprintf(listOfThese, snapshot("a"))
	if list, err := client.Namespace("ns").List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
		t.Errorf("the list of one namespace is %v (%v), want that of the API server", list, err)
	}
	s.status, s.answer = http.StatusGone, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old"}`
	if _, err := client.List(t.Context(), metav1.ListOptions{}); err == nil || !strings.Contains(err.Error(), "too old") {
		t.Errorf("got %v, want the API server's error", err)
	}
}
