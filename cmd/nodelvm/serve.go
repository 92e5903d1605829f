package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/nodelvm/nodelvm/controller"
	"github.com/nodelvm/nodelvm/lvm"
)

// systemDir is where our own lvm.conf is written; it belongs to this process alone.
const systemDir = "/run/nodelvm/lvm"

func serveCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the CSI driver of this node",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			log, err := newLogger(os.Stderr, o.logLevel, o.logFormat)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), &o, log)
		},
	}
	o.bind(cmd.Flags())
	return cmd
}

// serve runs the driver until ctx ends (SIGTERM) and everything has been drained, or until a part of it fails.
func serve(ctx context.Context, o *options, log *slog.Logger) error {
	log.InfoContext(ctx, "nodelvm starts", "version", version, "node", o.nodeName, "endpoint", o.endpoint)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	ready := newReadiness("the driver starts")

	group, ctx := errgroup.WithContext(ctx)
	// Health comes first and goes last: the process lives, whatever the API server and the disks do.
	health, err := serveHTTP(ctx, group, o.httpEndpoint, newHTTPHandler(ready.Ready, registry))
	if err != nil {
		return err
	}
	group.Go(func() error {
		return errors.Join(serveCSI(ctx, group, o, log, registry, ready), health.Close())
	})
	err = group.Wait()
	if err == nil {
		log.Info("nodelvm ends, nothing is under way")
	}
	return err
}

// serveCSI brings up LVM, the CSI services and the registration, in this order, and takes them down in reverse when
// ctx ends. The cluster's UID comes first: it goes into the tags of every volume.
func serveCSI(ctx context.Context, group *errgroup.Group, o *options, log *slog.Logger, registry *prometheus.Registry, ready *readiness) error {
	cluster, err := joinCluster(o)
	if err != nil {
		return orderly(ctx, err)
	}
	host, err := lvm.NewHost(lvm.Config{
		SystemDir: systemDir,
		LockDir:   o.lockDir,
		BackupDir: filepath.Join(o.stateDir, "backup"),
		Cluster:   cluster,
		Log:       log,
		Observe:   newCommandMetrics(registry),
	})
	if err != nil {
		return fmt.Errorf("prepare LVM: %w", err)
	}
	if err := host.Start(ctx); err != nil {
		return orderly(ctx, fmt.Errorf("recover what an earlier run left: %w", err))
	}
	registry.MustRegister(lvmCollector{read: host.Metrics})
	server := newServer(log, newCallMetrics(registry),
		&identity{ready: ready.Ready},
		controller.New(host, o.nodeName),
		csi.UnimplementedNodeServer{},
	)
	registrar, err := start(ctx, group, o, log, server)
	if err != nil {
		return err
	}
	ready.set(host.Ready, "")
	log.InfoContext(ctx, "serving")

	<-ctx.Done()
	ready.set(nil, "the driver stops")
	return shutdown(o.shutdownGrace, log, host, server, registrar)
}

// start serves CSI, and then tells the kubelet. It returns the registration's server, nil without registration.
func start(ctx context.Context, group *errgroup.Group, o *options, log *slog.Logger, server *grpc.Server) (*grpc.Server, error) {
	path, err := o.socket()
	if err != nil {
		return nil, err
	}
	listener, err := listen(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("serve CSI: %w", err)
	}
	group.Go(func() error { return server.Serve(listener) })
	if !o.register {
		return nil, nil
	}
	registrar, listener, err := newRegistrar(ctx, log, o.kubeletDir, path)
	if err != nil {
		server.Stop()
		return nil, fmt.Errorf("register with the kubelet: %w", err)
	}
	group.Go(func() error { return registrar.Serve(listener) })
	return registrar, nil
}

// joinCluster finds the cluster's UID, and starts the loops that need the API server. It waits for the API server as
// long as it takes: a volume whose tags do not say whose it is must not be made.
func joinCluster(o *options) (string, error) {
	if o.standalone {
		return o.clusterID, nil
	}
	if o.clusterID == "" {
		return "", errors.New("--cluster-id is needed")
	}
	return o.clusterID, nil
}

// shutdown takes the parts down in order: the kubelet forgets the driver, no new call is taken, and what LVM is
// writing is awaited, for a commit must never be cut in two.
func shutdown(grace time.Duration, log *slog.Logger, host *lvm.Host, server, registrar *grpc.Server) error {
	log.Info("nodelvm stops: waiting for what is under way", "at most", grace)
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if registrar != nil {
		registrar.Stop()
	}
	closed := make(chan error, 1)
	go func() { closed <- host.Close(ctx) }()
	stopServer(ctx, server)
	if err := <-closed; err != nil {
		return fmt.Errorf("LVM commands were still running after %s: %w", grace, err)
	}
	return nil
}

// serveHTTP serves health and metrics until the returned server is closed; an empty address serves nothing.
func serveHTTP(ctx context.Context, group *errgroup.Group, address string, handler http.Handler) (*http.Server, error) {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	if address == "" {
		return server, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve health and metrics: %w", err)
	}
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return server, nil
}

// orderly drops the error of a part that ended because the whole was told to end.
func orderly(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
