package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nodelvm/nodelvm/internal/logs"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// An API server that is late: the driver says what it waits for, and goes on when the answer comes.
func TestJoinClusterWaits(t *testing.T) {
	var up atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !up.Load():
			http.Error(w, "the API server starts", http.StatusServiceUnavailable)
		case r.URL.Path == "/api/v1/namespaces/kube-system":
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"u-1"}}`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	kubeconfig(t, server.URL)
	d := testDriver(t, &options{})
	client, err := d.newClient()
	must(t, err)

	parts, ctx := errgroup.WithContext(t.Context())
	ctx, stop := context.WithCancel(ctx)
	found := make(chan string, 1)
	parts.Go(func() error {
		id, err := d.joinCluster(ctx, client)
		found <- id
		return err
	})
	for deadline := time.Now().Add(wait.Limit(time.Minute)); ; time.Sleep(5 * time.Millisecond) {
		if err := d.ready.Ready(ctx); err != nil && strings.Contains(err.Error(), "waits for the Kubernetes API") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("readiness says %v", d.ready.Ready(ctx))
		}
	}
	up.Store(true)
	if id := <-found; id != "u-1" {
		t.Errorf("the cluster's UID is %q", id)
	}
	stop()
	if err := parts.Wait(); err != nil {
		t.Error(err)
	}
}

func TestJoinClusterStandalone(t *testing.T) {
	d := testDriver(t, &options{standalone: true, clusterID: "mine"})
	client, err := d.newClient()
	if client != nil || err != nil {
		t.Errorf("a client, %v", err)
	}
	if id, err := d.joinCluster(t.Context(), client); id != "mine" || err != nil {
		t.Errorf("got %q, %v", id, err)
	}
}

func testDriver(t *testing.T, o *options) *driver {
	t.Helper()
	log, err := logs.New(&buffer{}, "error", "json")
	must(t, err)
	return newDriver(o, log)
}

// kubeconfig makes the API server at url the one that a client of this test finds.
func kubeconfig(t *testing.T, url string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: test,
  clusters: [{name: test, cluster: {server: %q}}], users: [{name: test, user: {}}],
  contexts: [{name: test, context: {cluster: test, user: test}}]}`, url)
	must(t, os.WriteFile(path, []byte(config), 0o600))
	t.Setenv("KUBECONFIG", path)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
}

// TestNoServerIsConfigured: the driver alone can run without an API server, and says so.
func TestNoServerIsConfigured(t *testing.T) {
	for _, variable := range []string{"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "KUBECONFIG"} {
		t.Setenv(variable, "")
	}
	if _, err := testDriver(t, &options{}).newClient(); !errors.Is(err, kubeclient.ErrNoServer) || !strings.Contains(err.Error(), "or run with --standalone") {
		t.Error(err)
	}
}
