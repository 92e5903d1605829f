package main

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// joinCluster finds the cluster's UID.
func (d *driver) joinCluster(_ context.Context, _ *errgroup.Group) (string, error) {
	if d.o.clusterID == "" {
		return "", errors.New("--cluster-id is needed")
	}
	return d.o.clusterID, nil
}
