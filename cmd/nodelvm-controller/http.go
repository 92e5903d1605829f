package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
)

// These limits keep the costs of any client low: few bytes, and no long connection.
const (
	headerBytes   = 16 << 10
	headerTimeout = 5 * time.Second
	idleTimeout   = 2 * time.Minute
)

// newHTTPHandler serves to all clients /healthz and /readyz (the process runs) and /metrics, which are those of the Go runtime.
func newHTTPHandler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	for _, path := range []string{"GET /healthz", "GET /readyz"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "ok\n") // a prober that has gone needs no answer
		})
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 2}))
	return mux
}

// serveHTTP serves health and metrics until the caller closes the returned server; for an empty address it serves nothing.
func serveHTTP(ctx context.Context, parts *errgroup.Group, address string) (*http.Server, error) {
	server := &http.Server{Handler: newHTTPHandler(), ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: headerBytes}
	if address == "" {
		return server, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve health and metrics: %w", err)
	}
	parts.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return server, nil
}
