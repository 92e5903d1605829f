package demo

import (
	"context"
	"fmt"

	"github.com/nodelvm/nodelvm/test/scenario"
)

func memory() scenario.Scenario {
	return scenario.Scenario{Title: "The driver needs little memory", Steps: []scenario.Step{
		{Says: "nodelvm's resident memory is at most 40 MiB on each node", Prove: memoryIsSmall},
	}}
}

func memoryIsSmall(ctx context.Context, env *scenario.Environment) error {
	for _, node := range env.Lab.NodeNames() {
		kib, err := env.ResidentMemory(ctx, node, "nodelvm")
		if err != nil {
			return err
		}
		env.Reporter.Note("%s: %.1f MiB", node, float64(kib)/1024)
		if kib > 40<<10 {
			return fmt.Errorf("%s: %d KiB", node, kib)
		}
	}
	return nil
}
