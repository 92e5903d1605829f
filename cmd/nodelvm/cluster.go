package main

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nodelvm/nodelvm/controller"
	"github.com/nodelvm/nodelvm/kube"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm/host"
	"github.com/nodelvm/nodelvm/statuspage"
)

// Interval at which the driver asks the API server for the cluster's UID, and time limit for one request.
const (
	clusterRetry   = 2 * time.Second
	clusterTimeout = 10 * time.Second
)

// joinCluster returns a client of the API server, nil with --standalone, and the cluster's UID. It waits for the API server
// without a time limit: the driver must not create a volume whose tags do not name its cluster.
func (d *driver) joinCluster(ctx context.Context) (*kubeclient.Client, string, error) {
	if d.o.standalone {
		d.access.set(nil, "without a Kubernetes API (--standalone) this is served on loopback addresses alone")
		return nil, d.o.clusterID, nil
	}
	client, err := kubeclient.NewClient()
	if err != nil {
		return nil, "", err
	}
	d.access.set(kube.NewAccess(client).Review, "")
	for d.o.clusterID == "" {
		id, err := askCluster(ctx, client)
		if err == nil {
			return client, id, nil
		}
		d.ready.set(nil, "the driver waits for the Kubernetes API: "+err.Error())
		d.log.WarnContext(ctx, "cannot read the cluster's UID yet; retrying", "error", err)
		select {
		case <-time.After(clusterRetry):
		case <-ctx.Done():
			return nil, "", ctx.Err()
		}
	}
	return client, d.o.clusterID, nil
}

// newAgent returns this node's agent; nil without an API server.
func (d *driver) newAgent(client *kubeclient.Client, host *host.Host, health findings) *kube.Agent {
	if client == nil {
		return nil
	}
	return kube.NewAgent(kube.Config{
		Client: client, Node: d.o.nodeName, Volumes: host, Health: health, HealthScope: host.HealthScope, Holdings: host.ManagedVolumes, Snapshots: d.o.snapshots, Log: d.log,
	})
}

// clusterOf returns the Controller service's view of the cluster; nil without an agent: each volume is then placed alone.
func clusterOf(agent *kube.Agent) controller.Cluster {
	if agent == nil {
		return nil
	}
	return agent
}

// comparisonOf returns the agent's part of the status document; nil without an agent.
func comparisonOf(agent *kube.Agent) func() *statuspage.Comparison {
	if agent == nil {
		return nil
	}
	return agent.Comparison
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

func askCluster(ctx context.Context, client *kubeclient.Client) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	return kubeclient.ClusterID(ctx, client)
}
