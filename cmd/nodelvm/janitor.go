package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/nodelvm/nodelvm/kube"
)

// janitorOptions are the flags of `nodelvm janitor`.
type janitorOptions struct {
	namespace    string
	grace        time.Duration
	httpEndpoint string
	logLevel     string
	logFormat    string
}

// leastGrace is the shortest grace period: a kubelet that makes its Node object anew needs less.
const leastGrace = 10 * time.Second

func (o *janitorOptions) bind(flags *pflag.FlagSet) {
	flags.StringVar(&o.namespace, "namespace", os.Getenv("POD_NAMESPACE"), "where the lease is that one of several holds (default: the environment's POD_NAMESPACE)")
	flags.DurationVar(&o.grace, "grace", 10*time.Minute, "how long a node or a volume group must have been lost before anything is deleted; 10s or more")
	flags.StringVar(&o.httpEndpoint, "http-endpoint", ":9808", "address of /healthz, /readyz and /metrics; empty: none")
	flags.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&o.logFormat, "log-format", "json", "json or console")
}

func (o *janitorOptions) check() error {
	switch {
	case o.namespace == "":
		return errors.New("--namespace is empty; give the namespace of this pod, or set POD_NAMESPACE")
	case o.grace < leastGrace:
		return fmt.Errorf("--grace is %s; give %s or more, so that a node that only restarts is not taken for lost", o.grace, leastGrace)
	}
	return nil
}

func janitorCommand() *cobra.Command {
	var o janitorOptions
	cmd := &cobra.Command{
		Use:   "janitor",
		Short: "Tell of volumes on lost nodes, and release those whose storage class says so (once in a cluster)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return runJanitor(cmd.Context(), &o)
		},
	}
	o.bind(cmd.Flags())
	return cmd
}

// unguarded lets everybody through: the janitor's metrics are those of the Go runtime.
func unguarded(next http.Handler) http.Handler { return next }

func runJanitor(ctx context.Context, o *janitorOptions) error {
	log, err := newLogger(os.Stderr, o.logLevel, o.logFormat)
	if err != nil {
		return err
	}
	client, err := kube.NewClient()
	if err != nil {
		return err
	}
	name, err := os.Hostname() // a pod's is its own name
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "nodelvm janitor starts", "version", version, "grace", o.grace)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	ready := newReadiness("the janitor starts")
	ready.set(func(context.Context) error { return nil }, "")
	parts, ctx := errgroup.WithContext(ctx)
	health, err := serveHTTP(ctx, parts, o.httpEndpoint, newHTTPHandler(ready.Ready, pages{metrics: registry, guard: unguarded}))
	if err != nil {
		return err
	}
	janitor := kube.NewJanitor(kube.JanitorConfig{
		Client: client, Namespace: o.namespace, Holder: cmp.Or(name, "janitor"), Grace: o.grace, Log: log,
	})
	parts.Go(func() error {
		janitor.Run(ctx)
		return health.Close()
	})
	return parts.Wait()
}
