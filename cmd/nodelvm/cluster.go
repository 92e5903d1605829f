package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nodelvm/nodelvm/controller"
	"github.com/nodelvm/nodelvm/kube"
	"github.com/nodelvm/nodelvm/kube/apiproxy"
	"github.com/nodelvm/nodelvm/kube/groupsnapshot"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/host"
	"github.com/nodelvm/nodelvm/node"
	"github.com/nodelvm/nodelvm/report"
)

// Interval at which the driver asks the API server for the cluster's UID, and time limit for one request.
const (
	clusterRetry   = 2 * time.Second
	clusterTimeout = 10 * time.Second
)

// newClient returns a client of the API server; nil with --standalone. It sends no request.
func (d *driver) newClient() (*kubeclient.Client, error) {
	if d.o.standalone {
		d.access.set(nil, "without a Kubernetes API (--standalone) this is served on loopback addresses alone")
		return nil, nil
	}
	client, err := kubeclient.NewClient()
	if errors.Is(err, kubeclient.ErrNoServer) {
		return nil, fmt.Errorf("%w, or run with --standalone", err)
	}
	if err != nil {
		return nil, err
	}
	d.access.set(kube.NewAccess(client).Review, "")
	return client, nil
}

// joinCluster returns the cluster's UID. It waits for the API server without a time limit: the driver must not create a volume whose
// tags do not name its cluster.
func (d *driver) joinCluster(ctx context.Context, client *kubeclient.Client) (string, error) {
	for d.o.clusterID == "" {
		id, err := askCluster(ctx, client)
		if err == nil {
			return id, nil
		}
		d.ready.set(nil, "the driver waits for the Kubernetes API: "+err.Error())
		d.log.WarnContext(ctx, "cannot read the cluster's UID yet; retrying", "error", err)
		select {
		case <-time.After(clusterRetry):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return d.o.clusterID, nil
}

// clusterFile is the file in the state directory with the UID of the cluster that the node was in last.
const clusterFile = "cluster"

// lastCluster returns the cluster that the node was in last, as far as is known without the API server; "": that is unknown.
func (d *driver) lastCluster() string {
	if d.o.clusterID != "" {
		return d.o.clusterID
	}
	text, err := os.ReadFile(filepath.Join(d.o.stateDir, clusterFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.log.Warn("cannot read which cluster this node was in last; the driver waits for the Kubernetes API before it resumes suspended volumes", "error", err)
	}
	return strings.TrimSpace(string(text))
}

// recordCluster stores the cluster's UID for lastCluster. A power cut may lose it, but resumes every device as well.
func (d *driver) recordCluster(uid string) {
	if d.lastCluster() == uid {
		return
	}
	if err := os.WriteFile(filepath.Join(d.o.stateDir, clusterFile), []byte(uid+"\n"), 0o600); err != nil {
		d.log.Warn("cannot record which cluster this node is in", "error", err)
	}
}

// newAgent returns this node's agent; nil without an API server.
func (d *driver) newAgent(client *kubeclient.Client, host *host.Host, limits *limitedVolumes, moves *moves, health findings) *kube.Agent {
	if client == nil {
		return nil
	}
	c := kube.Config{
		Client: client, Node: d.o.nodeName, Volumes: host, Health: health, HealthScope: host.HealthScope, Holdings: host.ManagedVolumes, Snapshots: d.o.snapshots, Log: d.log,
		Register: d.registerAgain(), Moves: moves.observe(), Copies: moves.offers(),
	}
	if limits != nil {
		c.Volumes, c.Limits = limits, limits
	}
	return kube.NewAgent(c)
}

// clusterOf returns the Controller service's view of the cluster; nil without an agent: each volume is then placed alone.
func clusterOf(agent *kube.Agent) controller.Cluster {
	if agent == nil {
		return nil
	}
	return agent
}

// comparisonOf returns the agent's part of the status document; nil without an agent.
func comparisonOf(agent *kube.Agent) func() *report.Comparison {
	if agent == nil {
		return nil
	}
	return agent.Comparison
}

// claimedOf returns the agent's function that lists volumes of bound claims; nil without an agent.
func claimedOf(agent *kube.Agent) func() []lvm.Volume {
	if agent == nil {
		return nil
	}
	return agent.MissingVolumes
}

// act runs this node's agent in the background until ctx ends.
func (d *driver) act(ctx context.Context, parts *errgroup.Group, agent *kube.Agent) {
	if agent == nil {
		return
	}
	parts.Go(func() error {
		agent.Run(ctx)
		return nil
	})
}

// takeGroupSnapshots takes this node's group snapshots in the background until ctx ends.
func (d *driver) takeGroupSnapshots(ctx context.Context, parts *errgroup.Group, client *kubeclient.Client, agent *kube.Agent, host *host.Host, mounts *node.Server) {
	actor := groupsnapshot.New(groupsnapshot.Config{Client: client, Node: d.o.nodeName, Host: host, Sync: mounts.PrepareGroupCopy, NameThinClass: agent.NameThinClass, Log: d.log})
	parts.Go(func() error {
		actor.Run(ctx)
		return nil
	})
}

func askCluster(ctx context.Context, client *kubeclient.Client) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	return kubeclient.ClusterID(ctx, client)
}

// serveAPIProxy serves the API to csi-provisioner until the caller closes the returned server. A watch can last long, so the
// server limits the time of a header, but not of a request.
func (d *driver) serveAPIProxy(ctx context.Context, parts *errgroup.Group) (*http.Server, error) {
	server := &http.Server{ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: headerBytes}
	if d.o.apiProxy == "" {
		return server, nil
	}
	config, err := kubeclient.NewConfig()
	if err != nil {
		return nil, err
	}
	if server.Handler, err = apiproxy.New(config, d.o.nodeName, d.log); err != nil {
		return nil, err
	}
	if server.TLSConfig, err = apiproxy.ServerConfig(); err != nil {
		return nil, fmt.Errorf("cannot serve the proxy of the Kubernetes API: %w", err)
	}
	if err := serveOn(ctx, parts, d.o.apiProxy, server); err != nil {
		return nil, fmt.Errorf("cannot serve the proxy of the Kubernetes API: %w", err)
	}
	return server, nil
}
