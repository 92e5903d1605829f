package lifecycle

import (
	"context"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// Scenarios returns how volumes grow, are snapshotted and are copied. It needs nothing of other packages; the thin pools that it leaves on the
// nodes are meant to stay.
func Scenarios() []scenario.Scenario {
	l := &life{}
	return []scenario.Scenario{
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
	sourceNode = "node-1" // where the manifests hold every source
	otherNode  = "node-3" // where they draw the copies' pods
)

func lifeEnds() scenario.Scenario {
	return scenario.Scenario{Title: "All volumes are deleted, and nothing is left behind", Steps: []scenario.Step{
		{Says: "every database, pod and claim is deleted, the sources before their snapshots", Prove: scenario.DeleteEverything},
		{Says: "the snapshots are deleted", Prove: scenario.DeleteSnapshots},
		{Says: "no volume or snapshot remains on any node, only the pools", Prove: func(ctx context.Context, env *scenario.Environment) error {
			return cluster.Eventually(ctx, func() error { return env.CheckOnlyPools(ctx) })
		}},
	}}
}
