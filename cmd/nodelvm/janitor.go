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

	"github.com/nodelvm/nodelvm/kube/claimevents"
	"github.com/nodelvm/nodelvm/kube/janitor"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/nodegroup"
	"github.com/nodelvm/nodelvm/kube/scaledown"
)

// janitorOptions are the flags of `nodelvm janitor`.
type janitorOptions struct {
	namespace    string
	grace        time.Duration
	nodeGroups   string
	httpEndpoint string
	logLevel     string
	logFormat    string
}

// leastGrace is the shortest grace period: a kubelet needs less time to create its Node object again.
const leastGrace = 10 * time.Second

func (o *janitorOptions) bind(flags *pflag.FlagSet) {
	flags.StringVar(&o.namespace, "leader-election-namespace", os.Getenv("POD_NAMESPACE"), "namespace of the lease for leader election (default: environment variable POD_NAMESPACE)")
	flags.DurationVar(&o.grace, "grace-period", 10*time.Minute, "time for which a node or volume group must be lost before the janitor deletes an object; at least 10s")
	flags.StringVar(&o.nodeGroups, "node-groups-file", "", "YAML or JSON file with the node groups whose future nodes' capacity is published for cluster-autoscaler; empty: none, and the janitor deletes what it published for earlier ones")
	flags.StringVar(&o.httpEndpoint, "http-endpoint", ":9808", "address of /healthz, /readyz and /metrics; empty: no HTTP server")
	flags.StringVar(&o.logLevel, "log-level", "info", "log level: debug, info, warn or error")
	flags.StringVar(&o.logFormat, "log-format", "json", "log format: json or console")
}

func (o *janitorOptions) check() error {
	switch {
	case o.namespace == "":
		return errors.New("--leader-election-namespace is empty; set it to the namespace of this pod, or set the environment variable POD_NAMESPACE")
	case o.grace < leastGrace:
		return fmt.Errorf("--grace-period is %s; set it to %s or more, so that a node that restarts does not count as lost", o.grace, leastGrace)
	}
	return nil
}

func janitorCommand() *cobra.Command {
	var o janitorOptions
	cmd := &cobra.Command{
		Use:   "janitor",
		Short: "Report volumes on lost nodes, and release those whose storage class allows it (one Deployment in a cluster)",
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

// unguarded admits all requests: the janitor's metrics are those of the Go runtime.
func unguarded(next http.Handler) http.Handler { return next }

func runJanitor(ctx context.Context, o *janitorOptions) error {
	log, err := newLogger(os.Stderr, o.logLevel, o.logFormat)
	if err != nil {
		return err
	}
	client, err := kubeclient.NewClient()
	if err != nil {
		return err
	}
	name, err := os.Hostname() // in a pod: the pod's name
	if err != nil {
		return err
	}
	groups, err := o.readNodeGroups()
	if err != nil {
		return err
	}
	events := &kubeclient.EventRecorder{Client: client, Counts: map[string]kubeclient.EventCount{}}
	waiting := &claimevents.Reporter{Client: client, Namespace: o.namespace, Events: events, Log: log}
	removals := &scaledown.Reporter{Client: client, Events: events, Log: log}
	capacity := &nodegroup.Publisher{Client: client, Namespace: o.namespace, Groups: groups, Log: log}
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
	janitor := janitor.NewJanitor(janitor.JanitorConfig{
		Client: client, Namespace: o.namespace, Holder: cmp.Or(name, "janitor"), Grace: o.grace, Beside: []func(context.Context){waiting.Run, removals.Run, capacity.Run}, Log: log,
	})
	parts.Go(func() error {
		janitor.Run(ctx)
		return health.Close()
	})
	return parts.Wait()
}

// readNodeGroups returns the node groups of the file; none without a file.
func (o *janitorOptions) readNodeGroups() ([]nodegroup.Group, error) {
	if o.nodeGroups == "" {
		return nil, nil
	}
	return nodegroup.Read(o.nodeGroups)
}
