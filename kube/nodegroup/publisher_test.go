package nodegroup

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// TestWithoutGroupsThePublisherDeletesTheObjectsOfFormerOnes: it lists the objects of node groups alone, deletes them and ends.
func TestWithoutGroupsThePublisherDeletesTheObjectsOfFormerOnes(t *testing.T) {
	var requests []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.Method+" "+strings.TrimPrefix(r.URL.Path, "/apis/storage.k8s.io/v1/namespaces/ns/csistoragecapacities"))
		w.Header().Set("Content-Type", "application/json")
		list := storagev1.CSIStorageCapacityList{TypeMeta: metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "CSIStorageCapacityList"}}
		if r.Method == http.MethodGet {
			if want := "csi.storage.k8s.io/drivername=nodelvm.io," + api.LabelNodeGroup; r.URL.Query().Get("labelSelector") != want {
				t.Errorf("selector %q, want %q", r.URL.Query().Get("labelSelector"), want)
			}
			for _, name := range []string{"one", "two"} {
				list.Items = append(list.Items, storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}})
			}
		}
		if r.URL.Path[strings.LastIndex(r.URL.Path, "/"):] == "/two" { // another client has deleted it
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
			return
		}
		_ = json.NewEncoder(w).Encode(list)
	}))
	defer server.Close()
	client, err := kubeclient.NewClientFor(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	(&Publisher{Client: client, Namespace: "ns", Log: slog.New(slog.NewTextHandler(t.Output(), nil))}).Run(t.Context())
	slices.Sort(requests)
	if want := []string{"DELETE /one", "DELETE /two", "GET "}; !slices.Equal(requests, want) {
		t.Errorf("got the requests %q, want %q", requests, want)
	}
}

// TestNoGroupLearnsFromClaims: a tenant can name any node in an unbound claim, and so make it look used. The Publisher knows no claims.
func TestNoGroupLearnsFromClaims(t *testing.T) {
	var mu sync.Mutex
	watched := map[string]bool{}
	kinds := map[string]metav1.TypeMeta{
		"nodes": {APIVersion: "v1", Kind: "NodeList"}, "persistentvolumes": {APIVersion: "v1", Kind: "PersistentVolumeList"},
		"persistentvolumeclaims": {APIVersion: "v1", Kind: "PersistentVolumeClaimList"}, "storageclasses": {APIVersion: "storage.k8s.io/v1", Kind: "StorageClassList"},
		"csistoragecapacities": {APIVersion: "storage.k8s.io/v1", Kind: "CSIStorageCapacityList"},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resource := path.Base(r.URL.Path)
		mu.Lock()
		watched[resource] = true
		mu.Unlock()
		switch query := r.URL.Query(); {
		case query.Get("sendInitialEvents") != "":
			w.WriteHeader(http.StatusUnprocessableEntity) // the client falls back to lists
		case query.Get("watch") != "":
			<-r.Context().Done()
		default:
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(metav1.PartialObjectMetadataList{TypeMeta: kinds[resource], ListMeta: metav1.ListMeta{ResourceVersion: "1"}})
		}
	}))
	t.Cleanup(server.Close)
	client, err := kubeclient.NewClientFor(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	v := newView(client, "ns")
	v.watch(ctx, &parts)
	for known := false; !known; time.Sleep(5 * time.Millisecond) {
		_, known = v.state(time.Now())
	}
	cancel()
	parts.Wait()
	mu.Lock() // a handler may still run
	defer mu.Unlock()
	if got, want := slices.Sorted(maps.Keys(watched)), []string{"csistoragecapacities", "nodes", "persistentvolumes", "storageclasses"}; !slices.Equal(got, want) {
		t.Errorf("the Publisher watches %q, want %q", got, want)
	}
}
