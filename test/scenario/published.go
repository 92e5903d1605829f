package scenario

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/test/cluster"
)

// CapacityIsPublished creates the storage classes of load-classes.yaml and life-classes.yaml, and waits until every node publishes its
// capacity for them.
func CapacityIsPublished(ctx context.Context, env *Environment) error {
	if err := Apply("load-classes.yaml", "life-classes.yaml")(ctx, env); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error {
		for _, node := range env.Lab.NodeNames() {
			now, err := env.GroupState(ctx, node)
			if err != nil {
				return err
			}
			if err := env.CheckPublishedCapacity(ctx, GrowingClass, node, now.Capacity()); err != nil {
				return err
			}
		}
		_, err := env.PublishedCapacity(ctx, ThinClass, FirstNode)
		return err
	})
}

// StableThinCapacity returns how large a thin volume can be on a node, in bytes, as the node publishes it. It waits until that has not changed for
// 3 s: what was made a moment ago may not be counted yet.
func (env *Environment) StableThinCapacity(ctx context.Context, node string) (int64, error) {
	var last int64
	var since time.Time
	err := cluster.Eventually(ctx, func() error {
		list, err := env.Client.StorageV1().CSIStorageCapacities("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, c := range list.Items {
			if c.StorageClassName != ThinClass || c.NodeTopology.MatchLabels[cluster.TopologyKey] != node {
				continue
			}
			if now := c.MaximumVolumeSize.Value(); now != last {
				last, since = now, time.Now()
			}
			if standing := time.Since(since); standing < 3*time.Second {
				return fmt.Errorf("%s offers %d bytes, since %s", node, last, standing)
			}
			return nil
		}
		return fmt.Errorf("no CSIStorageCapacity for class %s and node %s", ThinClass, node)
	})
	return last, err
}
