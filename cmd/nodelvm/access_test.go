package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodelvm/nodelvm/kube"
)

// pod is the driver's pages, and a sidecar's metrics behind them.
type pod struct {
	access  *access
	handler http.Handler
}

func newPod(t *testing.T) *pod {
	t.Helper()
	sidecar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("sidecar " + r.URL.String() + " " + r.Header.Get("Authorization")))
	}))
	t.Cleanup(sidecar.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	registry := prometheus.NewRegistry()
	secret := prometheus.NewGauge(prometheus.GaugeOpts{Name: "claim"})
	registry.MustRegister(secret)
	p := &pod{access: newAccess()}
	status := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("claim")) })
	p.handler = newHTTPHandler(func(context.Context) error { return nil }, pages{
		metrics: registry, status: status, guard: p.access.guard,
		sidecars: map[string]string{"csi-provisioner": strings.TrimPrefix(sidecar.URL, "http://")},
	})
	return p
}

// get asks for a path at an address of the pod's, from another.
func (p *pod) get(t *testing.T, to, from, path, authorization string) *httptest.ResponseRecorder {
	t.Helper()
	local := net.TCPAddrFromAddrPort(mustAddrPort(t, to))
	ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, local)
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	r.RemoteAddr = from
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	reply := httptest.NewRecorder()
	p.handler.ServeHTTP(reply, r)
	return reply
}

// From outside: the pod's address, and another one.
const podAddress, elsewhere = "10.0.0.7:9808", "10.0.9.9:40000"

var guarded = []string{"/metrics", "/v1/status", "/metrics/csi-provisioner"}

// TestDetailsNeedAToken: who reaches the pod's address reads health, and nothing else without a right to it.
func TestDetailsNeedAToken(t *testing.T) {
	p := newPod(t)
	expect := func(authorization string, code int, says string) {
		t.Helper()
		for _, path := range guarded {
			reply := p.get(t, podAddress, elsewhere, path, authorization)
			if reply.Code != code || !strings.Contains(reply.Body.String(), says) || code != http.StatusOK && strings.Contains(reply.Body.String(), "# HELP") {
				t.Errorf("%s with %q: %d %s, want %d and %q", path, authorization, reply.Code, reply.Body, code, says)
			}
		}
		for _, path := range []string{"/healthz", "/readyz"} {
			if reply := p.get(t, podAddress, elsewhere, path, ""); reply.Code != http.StatusOK {
				t.Errorf("%s: %d", path, reply.Code)
			}
		}
	}
	expect("", http.StatusUnauthorized, "send a bearer token")
	expect("Basic reader", http.StatusUnauthorized, "send a bearer token")
	expect("Bearer reader", http.StatusServiceUnavailable, "has not reached the Kubernetes API")
	p.access.set(func(_ context.Context, token, path string) (kube.Decision, error) {
		switch {
		case token == "reader" && path != "":
			return kube.Granted, nil
		case token == "other":
			return kube.Forbidden, nil
		case token == "down":
			return kube.Granted, errors.New("secret-host refuses")
		case token == "busy":
			return kube.Granted, kube.ErrTooManyReviews
		}
		return kube.Unauthenticated, nil
	}, "")
	expect("", http.StatusUnauthorized, "send a bearer token")
	expect("Bearer nobody", http.StatusUnauthorized, "does not accept the token")
	expect("Bearer other", http.StatusForbidden, "nodelvm-metrics-reader")
	expect("Bearer down", http.StatusServiceUnavailable, "API does not answer")
	expect("Bearer busy", http.StatusServiceUnavailable, "too many unknown tokens")
	expect("Bearer reader", http.StatusOK, "")
	expect("bearer  reader", http.StatusOK, "")
	p.access.set(nil, "without a Kubernetes API (--standalone) this is served on loopback addresses alone")
	expect("Bearer reader", http.StatusServiceUnavailable, "--standalone")
}

// TestLoopbackNeedsNoToken: the pod's own containers, and who forwards a port to it. An address that only one side has is none.
func TestLoopbackNeedsNoToken(t *testing.T) {
	p := newPod(t)
	for _, test := range []struct {
		to, from string
		code     int
	}{
		{"127.0.0.1:9808", "127.0.0.1:40000", http.StatusOK},
		{"[::1]:9808", "[::1]:40000", http.StatusOK},
		{"[::ffff:127.0.0.1]:9808", "[::ffff:127.0.0.1]:40000", http.StatusOK},
		{"127.0.0.1:9808", elsewhere, http.StatusUnauthorized},
		{podAddress, "127.0.0.1:40000", http.StatusUnauthorized},
		{podAddress, "10.0.0.7:40000", http.StatusUnauthorized},
		{podAddress, "", http.StatusUnauthorized},
	} {
		for _, path := range guarded {
			if reply := p.get(t, test.to, test.from, path, ""); reply.Code != test.code {
				t.Errorf("%s at %s from %s: %d, want %d", path, test.to, test.from, reply.Code, test.code)
			}
		}
	}
}

// TestTokenIsNotForwardedToSidecar: the reader's token stays with the driver, which asks for the sidecar's metrics and nothing else.
func TestTokenIsNotForwardedToSidecar(t *testing.T) {
	p := newPod(t)
	p.access.set(func(context.Context, string, string) (kube.Decision, error) { return kube.Granted, nil }, "")
	if got := p.get(t, podAddress, elsewhere, "/metrics/csi-provisioner?a=b", "Bearer reader").Body.String(); got != "sidecar /metrics " {
		t.Errorf("the sidecar was asked for %q", got)
	}
	for _, path := range []string{"/metrics/other", "/metrics/csi-provisioner/x", "/debug/pprof/"} {
		if reply := p.get(t, podAddress, elsewhere, path, "Bearer reader"); reply.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, reply.Code)
		}
	}
}

func mustAddrPort(t *testing.T, address string) netip.AddrPort {
	t.Helper()
	parsed, err := netip.ParseAddrPort(address)
	must(t, err)
	return parsed
}
