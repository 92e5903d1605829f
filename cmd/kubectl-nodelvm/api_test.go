package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// apiServer serves objects by their path. It has not found those that are nil, and forbids all others. asked returns the paths of the
// requests so far.
func apiServer(t *testing.T, objects map[string]any) (c *cluster, asked func() []string) {
	t.Helper()
	var mu sync.Mutex
	var paths []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		paths = append(paths, r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		object, known := objects[r.URL.Path]
		switch {
		case !known:
			w.WriteHeader(http.StatusForbidden)
			object = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: "not for you"}
		case object == nil:
			w.WriteHeader(http.StatusNotFound)
		}
		if err := json.NewEncoder(w).Encode(object); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	c, err := newCluster(&rest.Config{Host: server.URL}, 10*time.Second)
	must(t, err)
	return c, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return paths
	}
}
