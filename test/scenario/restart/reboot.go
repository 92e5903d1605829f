package restart

import (
	"context"
	"time"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// NodeReboot returns the reboot of a node.
func NodeReboot() []scenario.Scenario {
	return []scenario.Scenario{{Title: "A node reboots with volumes of every layout", Steps: []scenario.Step{
		{Says: "one pod on " + scenario.FirstNode + " writes to a linear, a striped, a raid1 and a thin volume", Prove: everyLayoutWritten},
		{Says: "the node is shut down and boots: the pod runs again without help, and reads what it wrote", Prove: everyLayoutRead},
		{Says: "everything is deleted", Prove: func(ctx context.Context, env *scenario.Environment) error {
			if err := scenario.DeleteEverything(ctx, env); err != nil {
				return err
			}
			return cluster.Eventually(ctx, func() error { return env.CheckOnlyPools(ctx) })
		}},
	}}}
}

const (
	writeLayouts = `for l in linear striped raid1 thin; do ` + scenario.PatternCommand + ` | tee /volumes/$l/file | md5sum > /volumes/$l/sum; done; sync`
	readLayouts  = `for l in linear striped raid1 thin; do grep -q " /volumes/$l ext4 " /proc/mounts; [ "$(md5sum < /volumes/$l/file)" = "$(cat /volumes/$l/sum)" ]; done`
)

func everyLayoutWritten(ctx context.Context, env *scenario.Environment) error {
	if err := env.DropEmptyPools(ctx, scenario.FirstNode); err != nil {
		return err
	}
	if err := scenario.InOrder(scenario.CapacityIsPublished, scenario.Apply("load-layouts.yaml"))(ctx, env); err != nil {
		return err
	}
	for name, class := range map[string]string{"linear": scenario.GrowingClass, "striped": "striped", "raid1": "raid1", "thin": scenario.ThinClass} {
		if err := env.CreateClaim(ctx, scenario.FirstNode, name, class, "64Mi"); err != nil {
			return err
		}
	}
	if _, err := env.WaitPodReady(ctx, "layouts"); err != nil {
		return err
	}
	_, err := env.ExecInPod(ctx, "layouts", "sh", "-ec", writeLayouts)
	return err
}

func everyLayoutRead(ctx context.Context, env *scenario.Environment) error {
	began := time.Now()
	if err := env.RebootNode(ctx, scenario.FirstNode); err != nil {
		return err
	}
	if _, err := env.ExecInPodAgain(ctx, "layouts", "sh", "-ec", readLayouts); err != nil {
		return err
	}
	if err := cluster.Eventually(ctx, func() error { return env.CheckRestarted(ctx, "layouts") }); err != nil { // the kubelet tells it when it comes to it
		return err
	}
	env.Reporter.Note("it read them %.0f s after the node's boot began", time.Since(began).Seconds())
	return nil
}
