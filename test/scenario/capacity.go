package scenario

import (
	"context"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// freeExtents sums the free extents of a node's groups and tells their size in bytes; options are more of vgs's.
func (s *Stage) freeExtents(ctx context.Context, node string, options ...string) (count, size int64, err error) {
	groups, err := s.groups(ctx, node, options...)
	if err != nil {
		return 0, 0, err
	}
	for _, g := range groups {
		free, err := strconv.ParseInt(g.FreeExtents, 10, 64)
		if err != nil {
			return 0, 0, err
		}
		if size, err = strconv.ParseInt(g.ExtentSize, 10, 64); err != nil {
			return 0, 0, err
		}
		count += free
	}
	return count, size, nil
}

// published is the one figure of a class and a node: all that is free, and the largest volume.
func (s *Stage) published(ctx context.Context, class, node string) (int64, error) {
	list, err := s.Client.StorageV1().CSIStorageCapacities("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	var found []int64
	for _, c := range list.Items {
		if c.StorageClassName != class || c.NodeTopology.MatchLabels[TopologyKey] != node {
			continue
		}
		if c.Capacity.Value() != c.MaximumVolumeSize.Value() {
			return 0, fmt.Errorf("%s publishes %d bytes of class %s, and %d as the largest volume", node, c.Capacity.Value(), class, c.MaximumVolumeSize.Value())
		}
		found = append(found, c.Capacity.Value())
	}
	if len(found) != 1 {
		return 0, fmt.Errorf("%s publishes %d figures of class %s", node, len(found), class)
	}
	return found[0], nil
}

func (s *Stage) publishes(ctx context.Context, class, node string, want int64) error {
	is, err := s.published(ctx, class, node)
	if err == nil && is != want {
		err = fmt.Errorf("%s publishes %d bytes of class %s; %d are right", node, is, class, want)
	}
	return err
}

// capacityIsFree compares what a node publishes for the class fast with the free extents that vgs shows, and returns their number.
func (s *Stage) capacityIsFree(ctx context.Context, node string, options ...string) (extents int64, err error) {
	count, size, err := s.freeExtents(ctx, node, options...)
	if err != nil {
		return 0, err
	}
	return count, s.publishes(ctx, fastClass, node, count*size)
}
