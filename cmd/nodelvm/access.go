package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/kube"
)

// retryAfter is the value of Retry-After, in seconds, for a reader whose token the API server has not reviewed.
const retryAfter = "5"

// access protects pages that name volumes and claims. It admits requests on the pod's own loopback address: they come from the
// pod's containers, or through a port (pods/portforward) from a user whom the API server has authenticated. Others need a
// token.
type access struct {
	mu     sync.Mutex
	review func(ctx context.Context, token, path string) (kube.Decision, error) // nil: no API server
	why    string                                                               // why review is nil
}

func newAccess() *access {
	return &access{why: "the driver has not reached the Kubernetes API yet"}
}

// set changes how the driver reviews readers; nil: it refuses all tokens, because of why.
func (a *access) set(review func(context.Context, string, string) (kube.Decision, error), why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.review, a.why = review, why
}

// guard passes only permitted readers to next.
func (a *access) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isLocal(r) {
			next.ServeHTTP(w, r)
			return
		}
		code, text := a.decide(r)
		switch code {
		case http.StatusOK:
			next.ServeHTTP(w, r)
			return
		case http.StatusUnauthorized:
			w.Header().Set("WWW-Authenticate", "Bearer")
		case http.StatusServiceUnavailable:
			w.Header().Set("Retry-After", retryAfter)
		}
		http.Error(w, text, code)
	})
}

// decide returns a status and, unless it is StatusOK, the text for the reader.
func (a *access) decide(r *http.Request) (code int, text string) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return http.StatusUnauthorized, "send a bearer token of an account that may get " + r.URL.Path + " (ClusterRole nodelvm-metrics-reader)"
	}
	a.mu.Lock()
	review, why := a.review, a.why
	a.mu.Unlock()
	if review == nil {
		return http.StatusServiceUnavailable, why
	}
	decision, err := review(r.Context(), token, r.URL.Path)
	switch {
	case errors.Is(err, kube.ErrTooManyReviews):
		return http.StatusServiceUnavailable, err.Error()
	case err != nil:
		return http.StatusServiceUnavailable, "cannot review the token: the Kubernetes API does not answer"
	case decision == kube.Granted:
		return http.StatusOK, ""
	case decision == kube.Forbidden:
		return http.StatusForbidden, "the token's account may not get " + r.URL.Path + "; bind the ClusterRole nodelvm-metrics-reader to it"
	}
	return http.StatusUnauthorized, "the Kubernetes API does not accept the token"
}

// isLocal reports whether both ends of the connection are loopback addresses.
func isLocal(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if local == nil {
		return false
	}
	return isLoopback(local.String()) && isLoopback(r.RemoteAddr)
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && ip != nil && ip.IsLoopback()
}

// sidecarMetrics serves the metrics of a container of the same pod, which listens on a loopback address because it does not
// authenticate its clients.
func sidecarMetrics(address string) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: address})
			r.Out.URL.Path, r.Out.URL.RawQuery = "/metrics", ""
			r.Out.Header.Del("Authorization") // the reader's token is not the sidecar's
		},
		Transport: &http.Transport{ResponseHeaderTimeout: readyTimeout, MaxConnsPerHost: 2, IdleConnTimeout: time.Minute},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "the sidecar does not answer: "+err.Error(), http.StatusBadGateway)
		},
	}
}
