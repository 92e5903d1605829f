package main

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nodelvm/nodelvm/kube"
)

// How often the API server is asked for the cluster's UID, and how long one answer is awaited.
const (
	clusterRetry   = 2 * time.Second
	clusterTimeout = 10 * time.Second
)

// joinCluster finds the cluster's UID, and starts the loops that need the API server. It waits for the API server as
// long as it takes: a volume whose tags do not say whose it is must not be made.
func (d *driver) joinCluster(ctx context.Context, parts *errgroup.Group) (string, error) {
	if d.o.standalone {
		return d.o.clusterID, nil
	}
	client, err := kube.NewClient()
	if err != nil {
		return "", err
	}
	parts.Go(func() error {
		if err := kube.NewWatcher(client, d.log).Run(ctx); unlessEnded(ctx, err) != nil {
			d.log.ErrorContext(ctx, "StorageClasses are no longer watched", "error", err)
		}
		return nil
	})
	for d.o.clusterID == "" {
		id, err := askCluster(ctx, client)
		if err == nil {
			return id, nil
		}
		d.ready.set(nil, "the driver waits for the Kubernetes API: "+err.Error())
		d.log.WarnContext(ctx, "the cluster's UID cannot be read yet; asking again", "error", err)
		select {
		case <-time.After(clusterRetry):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return d.o.clusterID, nil
}

func askCluster(ctx context.Context, client *kube.Client) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	return kube.ClusterID(ctx, client)
}
