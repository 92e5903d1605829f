package scenario

import (
	"context"
	"fmt"

	"github.com/nodelvm/nodelvm/test/cluster"
)

// CreateSnapshot creates a VolumeSnapshot of a claim, and does not wait for it.
func (env *Environment) CreateSnapshot(ctx context.Context, name, claim string) error {
	return env.ApplyWith(ctx, "load-snapshot.yaml", "NAME", name, "CLAIM", claim)
}

// WaitSnapshotReady waits until a VolumeSnapshot can be restored.
func (env *Environment) WaitSnapshotReady(ctx context.Context, name string) error {
	return cluster.Eventually(ctx, func() error {
		status, err := env.Kubectl(ctx, "", "get", "volumesnapshot", "-n", cluster.Namespace, name, "-o", "jsonpath={.status}")
		if err != nil {
			return err
		}
		ready, err := env.Kubectl(ctx, "", "get", "volumesnapshot", "-n", cluster.Namespace, name, "-o", "jsonpath={.status.readyToUse}")
		if err == nil && ready != "true" {
			err = fmt.Errorf("snapshot %s is not ready: %s%s", name, status, env.LastEvents(ctx, name))
		}
		return err
	})
}
