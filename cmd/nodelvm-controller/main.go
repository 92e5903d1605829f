// Command nodelvm-controller does what concerns the whole cluster, in one active process. It has four parts:
//
//	kube/nodeloss     reports and releases volumes of lost nodes
//	kube/claimevents  says why claims wait
//	kube/scaledown    warns before an autoscaler removes a node with volumes
//	kube/nodegroup    publishes the capacity of nodes that do not exist yet
//
// The flow: options.go parses the flags; run waits for the lease (kube/cluster), and its holder watches the cluster and runs the
// parts. No volume depends on this process.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/nodelvm/nodelvm/internal/logs"
	"github.com/nodelvm/nodelvm/kube/claimevents"
	"github.com/nodelvm/nodelvm/kube/cluster"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/nodegroup"
	"github.com/nodelvm/nodelvm/kube/nodeloss"
	"github.com/nodelvm/nodelvm/kube/scaledown"
)

// version is the release. The linker sets it: -X main.version=v0.1.0.
var version = "devel"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := rootCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "nodelvm-controller:", err)
		stop()
		os.Exit(1)
	}
}

// run works until ctx ends (SIGTERM) or a part fails.
func run(ctx context.Context, o *options) error {
	log, err := logs.New(os.Stderr, o.logLevel, o.logFormat)
	if err != nil {
		return err
	}
	election, lead, err := newController(o, log)
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "nodelvm-controller starts", "version", version, "grace", o.grace)
	parts, ctx := errgroup.WithContext(ctx)
	health, err := serveHTTP(ctx, parts, o.httpEndpoint)
	if err != nil {
		return err
	}
	parts.Go(func() error {
		err := election.Run(ctx, lead)
		return errors.Join(err, health.Close())
	})
	return parts.Wait()
}

// newController returns what selects the active process, and what that does. It sends no request.
func newController(o *options, log *slog.Logger) (*cluster.Election, func(context.Context), error) {
	groups, err := o.readNodeGroups()
	if err != nil {
		return nil, nil, err
	}
	config, err := kubeclient.NewConfig()
	if err != nil {
		return nil, nil, err
	}
	client, err := kubeclient.NewClientFor(config)
	if err != nil {
		return nil, nil, err
	}
	clientset, err := cluster.NewClientset(config)
	if err != nil {
		return nil, nil, err
	}
	holder, err := os.Hostname() // in a pod: the pod's name
	if err != nil {
		return nil, nil, err
	}
	events := &kubeclient.EventRecorder{Client: client, Counts: map[string]kubeclient.EventCount{}}
	losses := &nodeloss.Controller{Client: client, Events: events, Losses: &nodeloss.Losses{}, Grace: o.grace, Log: log}
	waiting := &claimevents.Reporter{Client: client, Events: events, Log: log}
	removals := &scaledown.Reporter{Events: events, Log: log}
	capacity := &nodegroup.Publisher{Clientset: clientset, Namespace: o.namespace, Groups: groups, Log: log}
	lead := func(ctx context.Context) {
		cluster.NewObjects(clientset, client, o.namespace, log).Run(ctx, losses.Run, waiting.Run, removals.Run, capacity.Run)
	}
	return &cluster.Election{
		Leases: clientset.CoordinationV1(), Namespace: o.namespace, Holder: cmp.Or(holder, "nodelvm-controller"), Record: losses.Losses, Log: log,
	}, lead, nil
}
