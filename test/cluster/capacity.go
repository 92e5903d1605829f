package cluster

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PublishedCapacity returns the capacity in bytes that a node publishes for a class. It fails unless the class has exactly one
// CSIStorageCapacity for the node, whose maximum volume size equals its capacity.
func (c *Cluster) PublishedCapacity(ctx context.Context, class, node string) (int64, error) {
	list, err := c.Client.StorageV1().CSIStorageCapacities("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	var found []int64
	for _, published := range list.Items {
		if published.StorageClassName != class || published.NodeTopology.MatchLabels[TopologyKey] != node {
			continue
		}
		if published.Capacity.Value() != published.MaximumVolumeSize.Value() {
			return 0, fmt.Errorf("%s publishes %d bytes of class %s, and %d as the largest volume", node, published.Capacity.Value(), class, published.MaximumVolumeSize.Value())
		}
		found = append(found, published.Capacity.Value())
	}
	if len(found) != 1 {
		return 0, fmt.Errorf("%s publishes %d figures of class %s", node, len(found), class)
	}
	return found[0], nil
}

func (c *Cluster) CheckPublishedCapacity(ctx context.Context, class, node string, want int64) error {
	is, err := c.PublishedCapacity(ctx, class, node)
	if err == nil && is != want {
		err = fmt.Errorf("%s publishes %d bytes of class %s; %d are right", node, is, class, want)
	}
	return err
}

// CheckCapacityIsFree compares what a node publishes for a class with the free extents that vgs shows, and returns their number.
func (c *Cluster) CheckCapacityIsFree(ctx context.Context, class, node string, options ...string) (extents int64, err error) {
	count, size, err := c.FreeExtents(ctx, node, options...)
	if err != nil {
		return 0, err
	}
	return count, c.CheckPublishedCapacity(ctx, class, node, count*size)
}
