package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

func TestHealth(t *testing.T) {
	ready := newReadiness("the driver starts")
	server := httptest.NewServer(newHTTPHandler(ready.Ready, pages{metrics: prometheus.NewRegistry(), guard: newAccess().guard}))
	defer server.Close()

	expect := func(path string, code int, says string) {
		t.Helper()
		got, body := get(t, server.URL+path)
		if got != code || !strings.Contains(body, says) {
			t.Errorf("%s: %d %q, want %d and %q", path, got, body, code, says)
		}
	}
	expect("/readyz", http.StatusServiceUnavailable, "the driver starts")
	ready.set(func(context.Context) error { return nil }, "")
	expect("/readyz", http.StatusOK, "ok")
	ready.set(func(context.Context) error { return errors.New("no device-mapper") }, "")
	expect("/readyz", http.StatusServiceUnavailable, "no device-mapper")
	expect("/healthz", http.StatusOK, "ok")
	ready.set(nil, "the driver stops")
	expect("/readyz", http.StatusServiceUnavailable, "the driver stops")
}

// TestSidecarIsReadyOnceItAnswers: a container that ends before it serves HTTP is never ready.
func TestSidecarIsReadyOnceItAnswers(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().String()
	if err := listener.Close(); err != nil { // as while it crashes
		t.Fatal(err)
	}
	server := httptest.NewServer(newHTTPHandler(newReadiness("the driver starts").Ready,
		pages{metrics: prometheus.NewRegistry(), guard: newAccess().guard, sidecars: map[string]string{"csi-provisioner": address}}))
	defer server.Close()
	if code, body := get(t, server.URL+"/readyz/csi-provisioner"); code != http.StatusServiceUnavailable || !strings.Contains(body, "csi-provisioner does not answer") {
		t.Errorf("without the sidecar: %d %q", code, body)
	}
	if listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", address); err != nil {
		t.Fatal(err)
	}
	sidecar := httptest.NewUnstartedServer(http.NotFoundHandler())
	sidecar.Listener = listener
	sidecar.Start()
	defer sidecar.Close()
	if code, body := get(t, server.URL+"/readyz/csi-provisioner"); code != http.StatusOK {
		t.Errorf("with the sidecar: %d %q", code, body)
	}
	if code, _ := get(t, server.URL+"/readyz/other"); code != http.StatusNotFound {
		t.Errorf("a container that is not there: %d", code)
	}
}

// An unresponsive disk: the check never returns and ignores its context. Each caller gets an answer in time, liveness is
// fine, one goroutine is lost and no more; when the disk comes back, the driver is ready again.
func TestHealthCheckThatNeverReturns(t *testing.T) {
	ready := newReadiness("")
	ready.timeout = 50 * time.Millisecond
	var checks atomic.Int32
	back := make(chan struct{})
	ready.set(func(context.Context) error { checks.Add(1); <-back; return nil }, "")
	server := httptest.NewServer(newHTTPHandler(ready.Ready, pages{metrics: prometheus.NewRegistry(), guard: newAccess().guard}))
	defer server.Close()

	for range 3 {
		if code, body := get(t, server.URL+"/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "may be unresponsive") {
			t.Errorf("hung: %d %q", code, body)
		}
		if code, _ := get(t, server.URL+"/healthz"); code != http.StatusOK {
			t.Errorf("liveness while LVM hangs: %d", code)
		}
	}
	if n := checks.Load(); n != 1 {
		t.Errorf("%d checks hang at once, want 1", n)
	}
	close(back)
	for deadline := time.Now().Add(wait.Limit(time.Minute)); ready.Ready(context.Background()) != nil; {
		if time.Now().After(deadline) {
			t.Fatal("not ready after the disk came back")
		}
	}
}

func TestReadyStopsWithCaller(t *testing.T) {
	ready := newReadiness("")
	back := make(chan struct{})
	defer close(back)
	ready.set(func(context.Context) error { <-back; return nil }, "")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := ready.Ready(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	reply, err := http.DefaultClient.Do(req)
	must(t, err)
	defer func() { _ = reply.Body.Close() }()
	defer http.DefaultClient.CloseIdleConnections()
	body, err := io.ReadAll(reply.Body)
	must(t, err)
	return reply.StatusCode, string(body)
}
