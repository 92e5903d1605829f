package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// readyTimeout limits a check that the driver can read LVM's metadata. An unresponsive disk does not return an error.
const readyTimeout = 5 * time.Second

// readiness reports whether the driver can work. Each caller gets an answer in time.
type readiness struct {
	timeout time.Duration
	checks  sharedWork[error]

	mu    sync.Mutex
	check func(context.Context) error // nil while the driver starts or stops; state says which
	state string
}

func newReadiness(state string) *readiness {
	return &readiness{timeout: readyTimeout, state: state}
}

// set replaces the check; nil: not ready, because of state.
func (r *readiness) set(check func(context.Context) error, state string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.check, r.state = check, state
}

// Ready returns nil, or the reason why the driver cannot work now.
func (r *readiness) Ready(ctx context.Context) error {
	r.mu.Lock()
	check, state := r.check, r.state
	r.mu.Unlock()
	if check == nil {
		return errors.New(state)
	}
	now := r.checks.join(func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.timeout)
		defer cancel()
		return check(ctx)
	})
	timer := time.NewTimer(r.timeout)
	defer timer.Stop()
	select {
	case <-now.done:
		return now.result
	case <-timer.C:
		return fmt.Errorf("LVM has not answered within %s; a disk may be unresponsive", r.timeout)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pages are the pages of newHTTPHandler besides the health checks.
type pages struct {
	metrics  prometheus.Gatherer
	status   http.Handler                    // nil: no status page
	sidecars map[string]string               // address of a sidecar's metrics, by its container's name
	guard    func(http.Handler) http.Handler // admits only permitted readers
}

// newHTTPHandler serves to all clients /healthz (the process runs; never uses LVM, because a restart cannot repair a disk), /readyz (LVM
// works, and the kubelet has registered the driver) and /readyz/SIDECAR (the sidecar answers). It serves, with the guard, /metrics,
// /metrics/SIDECAR and the status page.
func newHTTPHandler(ready func(context.Context) error, p pages) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n") // a prober that has gone needs no answer
	})
	mux.Handle("GET "+readyPath, readyHandler(ready))
	mux.Handle("GET "+metricsPath, p.guard(promhttp.HandlerFor(p.metrics, promhttp.HandlerOpts{
		// Reading LVM's state may wait for an unresponsive disk; scrapes must not accumulate.
		Timeout:             readyTimeout,
		MaxRequestsInFlight: scrapesAtOnce,
	})))
	for name, address := range p.sidecars {
		mux.Handle("GET "+metricsPath+"/"+name, p.guard(sidecarMetrics(address)))
		mux.Handle("GET "+readyPath+"/"+name, readyHandler(sidecarAnswers(name, address)))
	}
	if p.status != nil {
		mux.Handle("GET "+report.Path, p.guard(p.status))
	}
	return mux
}

// scrapesAtOnce is enough for two Prometheus servers and a person with curl. Each needs memory for its answer.
const scrapesAtOnce = 3

// metricsPath is the path that Prometheus scrapes, readyPath the one that the kubelet probes.
const (
	metricsPath = "/metrics"
	readyPath   = "/readyz"
)

func readyHandler(ready func(context.Context) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if err := ready(req.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n") // a prober that has gone needs no answer
	})
}

// sidecarAnswers returns a check that a container of the same pod serves HTTP at its loopback address. csi-provisioner does so once it
// has reached the driver, and not before it ends because of its arguments: without this check a container that crashes is Ready in
// between, and an update reaches the next node.
func sidecarAnswers(name, address string) func(context.Context) error {
	client := &http.Client{Timeout: readyTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodHead, "http://"+address+"/", nil)
		if err != nil {
			return err
		}
		reply, err := client.Do(req)
		if err != nil {
			return fmt.Errorf("%s does not answer: %w", name, err)
		}
		return reply.Body.Close()
	}
}

// These limits keep the costs of a client without a valid token low: few bytes, and no long connection.
const (
	headerBytes   = 128 << 10
	headerTimeout = 5 * time.Second
	idleTimeout   = 2 * time.Minute
)

// serveHTTP serves health and metrics until the caller closes the returned server; for an empty address it serves nothing.
func serveHTTP(ctx context.Context, parts *errgroup.Group, address string, handler http.Handler) (*http.Server, error) {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: headerBytes}
	if err := serveOn(ctx, parts, address, server); err != nil {
		return nil, fmt.Errorf("serve health and metrics: %w", err)
	}
	return server, nil
}

// serveOn serves at the address until the server is closed, with TLS if the server has a TLS configuration; "": not at all.
func serveOn(ctx context.Context, parts *errgroup.Group, address string, server *http.Server) error {
	if address == "" {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	serve := server.Serve
	if server.TLSConfig != nil {
		serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}
	parts.Go(func() error {
		if err := serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return nil
}

// findings returns the conditions of this node's volumes and groups.
type findings func(context.Context) ([]lvm.Condition, error)

// healthOf combines several parts. It returns the findings of each, even if another one fails.
func healthOf(parts ...interface {
	Health(context.Context) ([]lvm.Condition, error)
}) findings {
	return func(ctx context.Context) ([]lvm.Condition, error) {
		var all []lvm.Condition
		var errs []error
		for _, part := range parts {
			found, err := part.Health(ctx)
			all, errs = append(all, found...), append(errs, err)
		}
		return all, errors.Join(errs...)
	}
}
