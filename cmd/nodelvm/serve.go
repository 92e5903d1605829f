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

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/nodelvm/nodelvm/controller"
	"github.com/nodelvm/nodelvm/internal/csihealth"
	"github.com/nodelvm/nodelvm/internal/logs"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/host"
	"github.com/nodelvm/nodelvm/node"
	"github.com/nodelvm/nodelvm/node/filesystem"
	"github.com/nodelvm/nodelvm/node/luks"
	"github.com/nodelvm/nodelvm/node/mount"
	"github.com/nodelvm/nodelvm/report"
)

// systemDir is the directory of the driver's own lvm.conf; no other process uses it.
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
			log, err := logs.New(os.Stderr, o.logLevel, o.logFormat)
			if err != nil {
				return err
			}
			limitGarbage()
			return newDriver(&o, log).serve(cmd.Context())
		},
	}
	o.bind(cmd.Flags())
	return cmd
}

// driver has what all parts of the process share.
type driver struct {
	o        *options
	log      *slog.Logger
	registry *prometheus.Registry
	ready    *readiness
	heard    *registered
	status   *statusPage
	access   *access
	crypt    encryption
	mappings mappings                             // crypt's, except in tests
	newHost  func(lvm.Config) (*host.Host, error) // host.NewHost, except in tests
}

func newDriver(o *options, log *slog.Logger) *driver {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	crypt := encryption{luks.New(log)}
	d := &driver{o: o, log: log, registry: registry, ready: newReadiness("the driver starts"), heard: &registered{}, access: newAccess(),
		crypt: crypt, mappings: crypt.Manager, newHost: host.NewHost}
	d.heard.set(report.Registration{State: report.RegistrationElsewhere})
	if o.register {
		d.heard.set(report.Registration{State: report.RegistrationWaiting})
	}
	d.status = newStatusPage(o, d.ready.Ready, d.heard.get)
	return d
}

// serve runs the driver until ctx ends (SIGTERM) and all operations have ended, or until a part fails. The health server starts
// first and stops last: the process is alive, whatever the state of the API server and the disks.
func (d *driver) serve(ctx context.Context) error {
	d.log.InfoContext(ctx, "nodelvm starts", "version", version, "node", d.o.nodeName, "endpoint", d.o.endpoint)
	parts, ctx := errgroup.WithContext(ctx)
	health, err := serveHTTP(ctx, parts, d.o.httpEndpoint, d.handler())
	if err != nil {
		return err
	}
	proxy, err := d.serveAPIProxy(ctx, parts) // csi-provisioner reads the API before it connects to the CSI socket
	if err != nil {
		return errors.Join(err, health.Close())
	}
	parts.Go(func() error {
		return errors.Join(d.serveVolumes(ctx, parts), proxy.Close(), health.Close())
	})
	err = parts.Wait()
	if err == nil {
		d.log.Info("nodelvm ends; no operation is running")
	}
	return err
}

// handler returns the handler of the driver's pages.
func (d *driver) handler() http.Handler {
	return newHTTPHandler(d.serving, pages{metrics: d.registry, status: d.status, sidecars: d.o.sidecarMetrics, guard: d.access.guard})
}

// serving returns nil if pods with volumes can start on this node, or the reason why they cannot. CSI's Probe does not ask for the
// registration: csi-provisioner does not need it.
func (d *driver) serving(ctx context.Context) error {
	if err := d.ready.Ready(ctx); err != nil {
		return err
	}
	return d.status.mountable()
}

// serveVolumes starts LVM, the CSI services and the registration, in this order, and stops them in reverse order when ctx ends.
func (d *driver) serveVolumes(ctx context.Context, parts *errgroup.Group) error {
	client, err := d.newClient()
	if err != nil {
		return unlessEnded(ctx, err)
	}
	host, cluster, err := d.startHost(ctx, parts, client)
	if err != nil {
		return unlessEnded(ctx, err)
	}
	var health findings
	recent := csihealth.NewRecent(func(ctx context.Context) ([]lvm.Condition, error) { return health(ctx) }, host.List)
	mounts := node.New(node.Config{NodeName: d.o.nodeName, VolumeLimit: d.o.volumeLimit, Devices: host, Encryption: d.crypt, IOLimits: d.o.ioLimiter(), Log: d.log, Conditions: recent.Found})
	care := &maintenance{host: host, file: d.o.volumeGroups, every: d.o.prepareEvery, log: d.log}
	record := newDiskRecord(host, d.o.stateDir, d.log)
	lost := &lostGroups{holdings: host.ManagedVolumes, disks: record.disks.In}
	health = record.describing(healthOf(host, mounts, care, lost))
	limits := d.limited(host, mounts)
	moves, err := d.newMoves(client, host, mounts.PrepareCopy)
	if err != nil {
		return errors.Join(err, d.closeHost(context.WithoutCancel(ctx), host))
	}
	agent := d.newAgent(client, host, limits, moves, health)
	lost.claimed = claimedOf(agent)
	about := document{node: d.o.nodeName, cluster: cluster, host: host, health: health, compare: comparisonOf(agent),
		details: volumeDetails{fileSystems: mounts.FileSystems, io: mounts.IO, class: classOf(agent), disks: record.disks}}
	d.status.serve(about)
	d.registry.MustRegister(nodeCollector{read: (&readings{read: about.read}).get, log: d.log})
	trims := newTrimMetrics(d.registry)
	service := newController(d.o.nodeName, host, limits, clusterOf(agent), mounts, recent.Found, moves.fullCopies())
	if agent != nil {
		agent.PlaceTogether(service.FitTogether)
	}
	server := newServer(d.log, newCallMetrics(d.registry), &identity{ready: d.ready.Ready, groups: d.o.groupSnapshots}, service, mounts)
	if d.o.groupSnapshots {
		csi.RegisterGroupControllerServer(server, controller.NewGroup(d.o.nodeName, host, mounts.PrepareGroupCopy, clusterOf(agent)))
	}
	registrar, err := d.listenAndServe(ctx, parts, server)
	if err == nil {
		err = moves.start(ctx, parts, d.o.shutdownGrace)
	}
	if err == nil {
		d.ready.set(host.Ready, "")
		d.log.InfoContext(ctx, "serving")
		d.act(ctx, parts, agent)
		care.start(ctx, parts)
		record.start(ctx, parts)
		d.checkLimits(ctx, parts, mounts.CheckLimits)
		if d.o.groupSnapshots && client != nil {
			d.takeGroupSnapshots(ctx, parts, client, agent, host, mounts)
		}
		if d.o.trim {
			startTrim(ctx, parts, mounts, agent, trims, d.log)
		}
		<-ctx.Done()
	}
	d.ready.set(nil, "the driver stops")
	return errors.Join(err, d.shutdown(context.WithoutCancel(ctx), host, server, registrar))
}

func (d *driver) hostConfig() lvm.Config {
	accepted := acceptedOptions{d.o.stateDir, d.o.kubeletDir, d.o.devicesFile}.config()
	if d.o.standalone {
		accepted.KubeletDir = ""
	}
	return lvm.Config{
		SystemDir: systemDir,
		LockDir:   d.o.lockDir,
		BackupDir: filepath.Join(d.o.stateDir, "backup"),
		Node:      d.o.nodeName,
		Log:       d.log,
		Observe:   newCommandMetrics(d.registry),
		Accepted:  accepted,

		ObserveStall: newStallMetric(d.registry, d.o.groupSnapshots),

		Encryption:    d.crypt,
		EmptyPoolsFor: d.o.emptyPoolsFor,
	}
}

// newController returns the Controller service. It refuses to create a volume that the Node service would refuse to mount.
func newController(nodeName string, host *host.Host, limits *limitedVolumes, cluster controller.Cluster, mounts *node.Server, conditions func(context.Context) (csihealth.Found, error), copies controller.FullCopies) *controller.Server {
	c := controller.Config{
		NodeName: nodeName, Volumes: host, Snapshots: host, Cluster: cluster,
		CheckFileSystem: filesystem.CheckOptions, CheckMountOptions: mount.CheckOptions, MinimumSize: filesystem.MinimumSize,
		PrepareCopy: mounts.PrepareCopy, Conditions: conditions, FullCopies: copies,
	}
	if limits != nil {
		c.Volumes, c.Limits = limits, limits
	}
	return controller.New(c)
}

// startHost sets up LVM on this node, and recovers what an earlier run left unfinished. It returns the cluster's UID too, which is in
// the tags of all volumes.
func (d *driver) startHost(ctx context.Context, parts *errgroup.Group, client *kubeclient.Client) (_ *host.Host, cluster string, err error) {
	host, err := d.newHost(d.hostConfig())
	if err != nil {
		return nil, "", fmt.Errorf("prepare LVM: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.closeHost(context.WithoutCancel(ctx), host))
		}
	}()
	if cluster, err = d.resumeAndJoin(ctx, parts, host, client); err != nil {
		return nil, "", err
	}
	d.recordCluster(cluster)
	host.SetCluster(cluster)
	if err := host.Start(ctx); err != nil {
		return nil, "", fmt.Errorf("recover after an earlier run: %w", err)
	}
	return host, cluster, nil
}

// resumeAndJoin resumes the volumes that an earlier run left suspended, and then waits for the API server: I/O of pods must not. It
// first waits for the end of that run, which may just take a snapshot. It resumes LVM's devices before the mappings on them: to thaw the
// file system of a mapping, the kernel writes to the device below.
func (d *driver) resumeAndJoin(ctx context.Context, parts *errgroup.Group, host *host.Host, client *kubeclient.Client) (cluster string, err error) {
	if err := host.AcquireInstanceLock(ctx); err != nil {
		return "", err
	}
	resuming, end := context.WithCancel(ctx)
	defer end() // Start resumes the rest
	if err := host.ResumeDevices(resuming, d.lastCluster()); err != nil {
		d.log.ErrorContext(ctx, "cannot resume suspended volumes yet; the driver retries when it has reached the Kubernetes API", "error", err)
	}
	d.recoverMappings(ctx, parts)
	return d.joinCluster(ctx, client)
}

// listenAndServe serves CSI, and then registers with the kubelet. It returns the registration's server, which serves nothing
// without --kubelet-registration.
func (d *driver) listenAndServe(ctx context.Context, parts *errgroup.Group, server *grpc.Server) (*grpc.Server, error) {
	registrar := grpc.NewServer()
	path, err := d.o.socket()
	if err != nil {
		return registrar, err
	}
	if err := listenOn(ctx, parts, server, path); err != nil {
		return registrar, fmt.Errorf("serve CSI: %w", err)
	}
	if d.o.register {
		registerRegistrar(registrar, d.log, path, d.heard)
		if err := listenOn(ctx, parts, registrar, registrySocket(d.o.kubeletDir)); err != nil {
			return registrar, fmt.Errorf("register with the kubelet: %w", err)
		}
	}
	return registrar, nil
}

func listenOn(ctx context.Context, parts *errgroup.Group, server *grpc.Server, path string) error {
	listener, err := listen(ctx, path)
	if err != nil {
		return err
	}
	parts.Go(func() error { return serveUntilStopped(server, listener) })
	return nil
}

// serveUntilStopped returns no error for a server that was stopped, even before it started.
func serveUntilStopped(server *grpc.Server, listener net.Listener) error {
	if err := server.Serve(listener); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// shutdown stops the parts in order: the kubelet unregisters the driver, the server accepts no more calls, and running LVM
// commands end, because a commit must never be interrupted.
func (d *driver) shutdown(ctx context.Context, host *host.Host, server, registrar *grpc.Server) error {
	d.log.InfoContext(ctx, "nodelvm stops; waiting for running operations", "atMost", d.o.shutdownGrace)
	ctx, cancel := context.WithTimeout(ctx, d.o.shutdownGrace)
	defer cancel()
	registrar.Stop()
	closed := make(chan error, 1)
	go func() { closed <- d.closeHost(ctx, host) }()
	stopServer(ctx, server)
	return <-closed
}

// closeHost waits for running LVM commands, but not longer than --shutdown-timeout.
func (d *driver) closeHost(ctx context.Context, host *host.Host) error {
	ctx, cancel := context.WithTimeout(ctx, d.o.shutdownGrace)
	defer cancel()
	if err := host.Close(ctx); err != nil {
		return fmt.Errorf("LVM was still running after %s: %w", d.o.shutdownGrace, err)
	}
	return nil
}

// unlessEnded drops the error of a part that ended because ctx ended.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}
