package lifecycle

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

func growing() scenario.Scenario {
	return scenario.Scenario{Title: "A database's volume is expanded under load", Steps: []scenario.Step{
		{Says: "a PostgreSQL server gets a thin volume of 512 MiB", Prove: scenario.SmallDatabase},
		{Says: "under pgbench's load it is expanded to 1 GiB: no restart, no failed transaction", Prove: growsUnderLoad},
		{Says: "claim, PersistentVolume and lvs agree on 1 GiB", Prove: func(ctx context.Context, env *scenario.Environment) error {
			return env.CheckSizes(ctx, scenario.DatabaseClaim, "1Gi")
		}},
	}}
}

func growsUnderLoad(ctx context.Context, env *scenario.Environment) error {
	before, err := env.WaitPodReady(ctx, scenario.DatabasePod)
	if err != nil {
		return err
	}
	small, err := env.FileSystemSize(ctx, scenario.DatabasePod, scenario.DatabasePath)
	if err != nil {
		return err
	}
	load, err := env.StartPgbench(ctx, scenario.DatabasePod)
	if err != nil {
		return err
	}
	grown := env.Expand(ctx, scenario.DatabaseClaim, scenario.DatabasePod, "1Gi")
	transactions, err := load.Stop(ctx)
	if err := errors.Join(grown, err); err != nil {
		return err
	}
	large, err := env.FileSystemSize(ctx, scenario.DatabasePod, scenario.DatabasePath)
	if err != nil {
		return err
	}
	after, err := env.WaitPodReady(ctx, scenario.DatabasePod)
	if err != nil {
		return err
	}
	env.Reporter.Note("df says %d MiB, and said %d MiB; pgbench's transactions meanwhile: %d", large>>20, small>>20, transactions)
	if large < 900<<20 || small > 512<<20 {
		return fmt.Errorf("the file system had %d bytes and has %d", small, large)
	}
	if was, is := scenario.ContainerOf(before), scenario.ContainerOf(after); was != is {
		return fmt.Errorf("the container was %s and is %s", was, is)
	}
	return nil
}

func infeasible() scenario.Scenario {
	return scenario.Scenario{Title: "An expansion that is too large can be canceled", Steps: []scenario.Step{
		{Says: "a claim requests 100 GiB: the expansion is infeasible, and an event says why", Prove: tooLarge},
		{Says: "the claim requests 1100 MiB instead, and the volume gets that size", Prove: lowered},
	}}
}

const wishful = "clone-early" // its pod has the same name

func tooLarge(ctx context.Context, env *scenario.Environment) error {
	if err := env.RequestSize(ctx, wishful, "100Gi"); err != nil {
		return err
	}
	if err := env.WaitClaimEvent(ctx, wishful, "VolumeResizeFailed", "from 1 GiB to 100 GiB"); err != nil {
		return err
	}
	if err := cluster.Eventually(ctx, func() error {
		return env.CheckExpanded(ctx, wishful, "100Gi", corev1.PersistentVolumeClaimControllerResizeInfeasible)
	}); err != nil {
		return err
	}
	return env.CheckSizes(ctx, wishful, "1Gi")
}

func lowered(ctx context.Context, env *scenario.Environment) error {
	if err := env.Expand(ctx, wishful, wishful, "1100Mi"); err != nil {
		return err
	}
	if size, err := env.FileSystemSize(ctx, wishful, "/data"); err != nil || size < 1000<<20 {
		return errors.Join(err, fmt.Errorf("the file system has %d MiB", size>>20))
	}
	return env.CheckSizes(ctx, wishful, "1100Mi")
}
