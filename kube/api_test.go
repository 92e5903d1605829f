package kube

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

// fakeAPI is a small API server: the real client sends it real requests over HTTP. It serves lists and watches of two
// resources, annotations of claims, one namespace, and events.
type fakeAPI struct {
	*httptest.Server
	mu       sync.Mutex
	objects  map[string]map[string]runtime.Object // by resource, by key
	watchers map[string][]chan metav1.WatchEvent
	lists    map[string]int // number of lists, by resource
	events   map[string]*corev1.Event
	posts    int // of events, including those of existing ones
	patches  int // of events
	refuse   int // number of event requests that fail
	patched  []time.Time
}

func newAPI(t *testing.T) (*fakeAPI, *kubeclient.Client) {
	t.Helper()
	a := &fakeAPI{
		objects:  map[string]map[string]runtime.Object{"storageclasses": {}, "persistentvolumeclaims": {}},
		watchers: map[string][]chan metav1.WatchEvent{},
		lists:    map[string]int{},
		events:   map[string]*corev1.Event{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/namespaces/kube-system", func(w http.ResponseWriter, _ *http.Request) {
		kubetest.Reply(w, http.StatusOK, &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "cluster-uid"}})
	})
	mux.HandleFunc("POST /api/v1/namespaces/{namespace}/events", a.postEvent)
	mux.HandleFunc("PATCH /api/v1/namespaces/{namespace}/events/{name}", a.patchEvent)
	mux.HandleFunc("GET /api/v1/persistentvolumeclaims", a.listOrWatch)
	mux.HandleFunc("PATCH /api/v1/namespaces/ns/persistentvolumeclaims/{name}", a.patchClaim)
	mux.HandleFunc("GET /apis/storage.k8s.io/v1/storageclasses", a.listOrWatch)
	a.Server = httptest.NewServer(mux)
	t.Cleanup(a.Close)
	client, err := kubeclient.NewClientFor(&rest.Config{Host: a.URL})
	must(t, err)
	return a, client
}

func (a *fakeAPI) postEvent(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.posts++
	if a.refuse > 0 {
		a.refuse--
		kubetest.Reply(w, http.StatusForbidden, apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", nil).Status())
		return
	}
	event, err := decodeEvent(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	key := r.PathValue("namespace") + "/" + event.Name
	if a.events[key] != nil {
		kubetest.Reply(w, http.StatusConflict, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "events"}, event.Name).Status())
		return
	}
	a.events[key] = event
	event.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}
	kubetest.Reply(w, http.StatusCreated, event)
}

// patchEvent applies a merge patch to an existing event.
func (a *fakeAPI) patchEvent(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.patches++
	event := a.events[r.PathValue("namespace")+"/"+r.PathValue("name")]
	switch {
	case a.refuse > 0:
		a.refuse--
		kubetest.Reply(w, http.StatusForbidden, apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", nil).Status())
	case event == nil:
		kubetest.Reply(w, http.StatusNotFound, apierrors.NewNotFound(schema.GroupResource{Resource: "events"}, r.PathValue("name")).Status())
	case json.NewDecoder(r.Body).Decode(event) != nil:
		http.Error(w, "unreadable patch", http.StatusBadRequest)
	default:
		kubetest.Reply(w, http.StatusOK, event)
	}
}

// patchClaim applies a merge patch with a resource version to a claim's annotations.
func (a *fakeAPI) patchClaim(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	before, ok := a.objects["persistentvolumeclaims"][r.PathValue("name")].(*corev1.PersistentVolumeClaim)
	a.mu.Unlock()
	change := corev1.PersistentVolumeClaim{}
	if err := json.NewDecoder(r.Body).Decode(&change); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !ok || change.ResourceVersion != before.ResourceVersion {
		kubetest.Reply(w, http.StatusConflict, apierrors.NewConflict(schema.GroupResource{Resource: "persistentvolumeclaims"}, r.PathValue("name"), nil).Status())
		return
	}
	now := before.DeepCopy()
	now.ResourceVersion += "1"
	maps.Copy(now.Annotations, change.Annotations)
	a.mu.Lock()
	a.patched = append(a.patched, time.Now())
	a.mu.Unlock()
	a.set("persistentvolumeclaims", now.Name, now)
	kubetest.Reply(w, http.StatusOK, now)
}

func (a *fakeAPI) listOrWatch(w http.ResponseWriter, r *http.Request) {
	resource := path.Base(r.URL.Path)
	if r.URL.Query().Get("watch") != "" {
		a.watch(w, r, resource)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lists[resource]++
	items := []runtime.Object{}
	for _, o := range a.objects[resource] {
		items = append(items, o)
	}
	version, kind := "v1", "PersistentVolumeClaimList"
	if resource == "storageclasses" {
		version, kind = "storage.k8s.io/v1", "StorageClassList"
	}
	kubetest.Reply(w, http.StatusOK, map[string]any{"apiVersion": version, "kind": kind, "metadata": metav1.ListMeta{ResourceVersion: "1"}, "items": items})
}

func (a *fakeAPI) watch(w http.ResponseWriter, r *http.Request, resource string) {
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		kubetest.Reply(w, http.StatusUnprocessableEntity, apierrors.NewInvalid(schema.GroupKind{}, "", nil).Status()) // like an older server: the client must list first
		return
	}
	changes := make(chan metav1.WatchEvent, 100)
	a.mu.Lock()
	a.watchers[resource] = append(a.watchers[resource], changes)
	a.mu.Unlock()
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	for {
		if out.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			a.mu.Lock()
			defer a.mu.Unlock()
			a.watchers[resource] = without(a.watchers[resource], changes)
			return
		case change := <-changes:
			_ = json.NewEncoder(w).Encode(change)
		}
	}
}

func without(list []chan metav1.WatchEvent, gone chan metav1.WatchEvent) []chan metav1.WatchEvent {
	var rest []chan metav1.WatchEvent
	for _, c := range list {
		if c != gone {
			rest = append(rest, c)
		}
	}
	return rest
}

// set adds or changes an object; remove deletes it. Both notify the watchers.
func (a *fakeAPI) set(resource, key string, o runtime.Object) { a.change(resource, key, "ADDED", o) }

func (a *fakeAPI) remove(resource, key string) { a.change(resource, key, "DELETED", nil) }

func (a *fakeAPI) change(resource, key, what string, o runtime.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before, there := a.objects[resource][key]
	switch {
	case o == nil:
		o = before
		delete(a.objects[resource], key)
	case there:
		what = "MODIFIED"
		fallthrough
	default:
		a.objects[resource][key] = o
	}
	for _, w := range a.watchers[resource] {
		w <- metav1.WatchEvent{Type: what, Object: runtime.RawExtension{Object: o}}
	}
}

func (a *fakeAPI) watching(resource string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.watchers[resource])
}

// eventObjects lists the objects of the events, such as "StorageClass default/fast".
func (a *fakeAPI) eventObjects() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []string
	for key, e := range a.events {
		namespace, _, _ := strings.Cut(key, "/")
		list = append(list, e.InvolvedObject.Kind+" "+namespace+"/"+e.InvolvedObject.Name)
	}
	return sorted(list)
}

var must = check.Must
