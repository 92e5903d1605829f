package scenario

import (
	"context"
	"fmt"

	"github.com/nodelvm/nodelvm/test/cluster"
)

// VolumeLifecycle returns a second scenario: how volumes grow, are snapshotted and are copied. It needs nothing of the first; the
// thin pools that it leaves on the nodes are meant to stay.
func VolumeLifecycle() []Scenario {
	l := &life{}
	return []Scenario{
		growing(),
		l.snapshot(),
		copies(),
		room(),
		infeasible(),
		access(),
		lifeEnds(),
	}
}

// life is what one scenario leaves for the next to know.
type life struct {
	acked    int64 // the writer's rows that were acknowledged before the snapshot was asked for
	begun    int64 // the rows that it had sent when the snapshot was ready
	unloaded int64 // pgbench's transactions before it was at work at the snapshot
}

const (
	thinClass  = "thin"
	sourceNode = "node-1" // where the manifests hold every source
	otherNode  = "node-3" // where they draw the copies' pods
)

func lifeEnds() Scenario {
	return Scenario{Title: "All volumes are deleted, and nothing is left behind", Steps: []Step{
		{Says: "every database, pod and claim is deleted, the sources before their snapshots", Prove: deleteEverything},
		{Says: "the snapshots are deleted", Prove: deleteSnapshots},
		{Says: "no volume or snapshot remains on any node, only the pools", Prove: func(ctx context.Context, env *Environment) error {
			return cluster.Eventually(ctx, func() error { return env.CheckOnlyPools(ctx) })
		}},
	}}
}

func deleteSnapshots(ctx context.Context, env *Environment) error {
	if _, err := env.Kubectl(ctx, "", "delete", "volumesnapshot", "-n", cluster.Namespace, "--all", "--wait"); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error {
		left, err := env.Kubectl(ctx, "", "get", "volumesnapshotcontent", "-o", "name")
		if err == nil && left != "" {
			err = fmt.Errorf("these are still there: %s", left)
		}
		return err
	})
}
