package apiproxy_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/nodelvm/nodelvm/kube/apiproxy"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

func eventOf(t *testing.T, kind watch.EventType, c *corev1.PersistentVolumeClaim, version int) metav1.WatchEvent {
	t.Helper()
	c.ResourceVersion = strconv.Itoa(version)
	e := metav1.WatchEvent{Type: string(kind)}
	e.Object.Raw = encode(t, typed(c))
	return e
}

// watched returns the events that a client gets, as "TYPE name".
func watched(t *testing.T, address string) (got []string) {
	t.Helper()
	events, err := client(t, address).Get().AbsPath(claims).Param("watch", "true").Watch(t.Context())
	must(t, err)
	defer events.Stop()
	for e := range events.ResultChan() {
		c, ok := e.Object.(*corev1.PersistentVolumeClaim)
		if !ok {
			t.Fatalf("got %+v", e)
		}
		got = append(got, string(e.Type)+" "+c.Name)
	}
	return got
}

// TestUnreadableSource: a clone comes without its source only if there is none, or the client may not read it. Otherwise the list fails,
// and a watch ends before the clone.
func TestUnreadableSource(t *testing.T) {
	for status, absent := range map[int]bool{http.StatusNotFound: true, http.StatusForbidden: true, http.StatusTooManyRequests: false,
		http.StatusInternalServerError: false, http.StatusServiceUnavailable: false, http.StatusUnauthorized: false} {
		s := &apiServer{claims: []corev1.PersistentVolumeClaim{*cloneOf("source")}, sourceStatus: status, events: []metav1.WatchEvent{
			eventOf(t, watch.Added, bound("a", "node-1"), 8), eventOf(t, watch.Added, cloneOf("source"), 9)}}
		address := s.start(t)
		err := client(t, address).Get().AbsPath(claims).MaxRetries(0).Do(t.Context()).Error()
		var answer apierrors.APIStatus
		if failed := errors.As(err, &answer) && answer.Status().Code == http.StatusBadGateway; failed == absent || absent && err != nil {
			t.Errorf("the source answers %d: the list %v", status, err)
		}
		want := []string{"ADDED a"}
		if absent {
			want = []string{"ADDED a", "ADDED clone"}
		}
		if got := watched(t, address); !slices.Equal(got, want) {
			t.Errorf("the source answers %d: the watch %q, want %q", status, got, want)
		}
	}
}

// TestSourceChangesBeforeItsClone: while a clone waits, its source stays in the client's cache, also in a later watch, and leaves it when
// the clone is bound or deleted.
func TestSourceChangesBeforeItsClone(t *testing.T) {
	done := cloneOf("source")
	done.Spec.VolumeName = "pvc-clone"
	moved := cloneOf("source")
	moved.Annotations = bound("clone", "node-2").Annotations
	s := &apiServer{claims: []corev1.PersistentVolumeClaim{*bound("source", "node-2")}}
	address := s.start(t)
	source := func() metav1.WatchEvent { return eventOf(t, watch.Modified, bound("source", "node-2"), 9) }
	for name, end := range map[string]metav1.WatchEvent{"bound": eventOf(t, watch.Modified, done, 10), "deleted": eventOf(t, watch.Deleted, cloneOf("source"), 10),
		"moved": eventOf(t, watch.Modified, moved, 10)} {
		for _, step := range []struct {
			events []metav1.WatchEvent
			want   []string
		}{
			{[]metav1.WatchEvent{eventOf(t, watch.Added, cloneOf("source"), 8), source()}, []string{"ADDED source", "ADDED clone", "MODIFIED source"}},
			{[]metav1.WatchEvent{source(), eventOf(t, watch.Added, bound("source", "node-2"), 9)}, []string{"MODIFIED source", "ADDED source"}},
			{[]metav1.WatchEvent{end, source()}, []string{end.Type + " clone", "DELETED source"}},
		} {
			s.events = step.events
			if got := watched(t, address); !slices.Equal(got, step.want) {
				t.Errorf("%s: got %q, want %q", name, got, step.want)
			}
		}
	}
	s.events = []metav1.WatchEvent{eventOf(t, watch.Added, cloneOf("source"), 8)}
	watched(t, address)
	must(t, client(t, address).Get().AbsPath(claims).Do(t.Context()).Error()) // a list without the clone
	s.events = []metav1.WatchEvent{source()}
	if got := watched(t, address); !slices.Equal(got, []string{"DELETED source"}) {
		t.Errorf("after a list without the clone: %q", got)
	}
}

// history is an API server that lists no claim and then serves events from any version on. It refuses the first read of a claim.
type history struct {
	t       *testing.T
	events  []metav1.WatchEvent // of the versions 43 and up
	source  *corev1.PersistentVolumeClaim
	mu      sync.Mutex
	refused bool
	asked   []string // lists and watches
}

func (h *history) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	switch {
	case strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/"):
		h.mu.Lock()
		first := !h.refused
		h.refused = true
		h.mu.Unlock()
		if first {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write(encode(h.t, typed(h.source)))
	case query.Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity) // the client falls back to lists
	case query.Get("watch") == "":
		h.note("list")
		list := &corev1.PersistentVolumeClaimList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaimList"}}
		list.ResourceVersion = "42"
		_, _ = w.Write(encode(h.t, list))
	default:
		h.note("watch " + query.Get("resourceVersion"))
		h.watch(w, r, query.Get("resourceVersion"))
	}
}

func (h *history) note(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, what)
}

func (h *history) watch(w http.ResponseWriter, r *http.Request, since string) {
	version, err := strconv.Atoi(since)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
	frames := protobuf.LengthDelimitedFramer.NewFrameWriter(w)
	for _, e := range h.events[version-42:] {
		raw, err := e.Marshal()
		if err == nil {
			_, err = frames.Write(raw)
		}
		if err != nil {
			return // the proxy has closed the connection
		}
	}
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// TestWatchResumesAtAClone: if the source of a clone cannot be read, the watch of a client ends, and the next one starts before the clone.
func TestWatchResumesAtAClone(t *testing.T) {
	h := &history{t: t, source: bound("source", "node-2"), events: []metav1.WatchEvent{
		eventOf(t, watch.Added, bound("a", "node-1"), 43), eventOf(t, watch.Added, cloneOf("source"), 44), eventOf(t, watch.Added, bound("b", "node-1"), 45)}}
	upstream := httptest.NewServer(h)
	t.Cleanup(upstream.Close)
	proxy, err := apiproxy.New(&rest.Config{Host: upstream.URL}, "node-1", slog.New(slog.DiscardHandler))
	must(t, err)
	local := httptest.NewServer(proxy)
	t.Cleanup(local.Close)
	store := kubeclient.NewFilteredStore(func(o any) (string, bool) {
		c, ok := o.(*corev1.PersistentVolumeClaim)
		return c.Name, ok
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		kubeclient.Reflect(ctx, client(t, local.URL), "persistentvolumeclaims", "", &corev1.PersistentVolumeClaim{}, store)
	}()
	want := []string{"a", "b", "clone", "source"}
	for deadline := time.Now().Add(wait.Limit(30 * time.Second)); time.Now().Before(deadline) && len(store.All()) < len(want); {
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	<-ended
	got := store.All()
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("the client has %q, want %q", got, want)
	}
	if asked := []string{"list", "watch 42", "watch 43"}; !slices.Equal(h.asked, asked) {
		t.Errorf("the client asked %q, want %q", h.asked, asked)
	}
}
