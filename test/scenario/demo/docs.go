package demo

import (
	"context"
	"path/filepath"
	"time"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/docrun"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// Docs follows pages of the documentation, a step each, and removes what they leave.
func Docs(pages []docrun.Page) []scenario.Scenario {
	sc := scenario.Scenario{Title: "The commands in the documentation work"}
	for _, page := range pages {
		follow := func(ctx context.Context, env *scenario.Environment) error {
			top, err := cluster.Checkout()
			if err != nil {
				return err
			}
			return docrun.Follow(ctx, env.Lab, top, page, env.Reporter.Note)
		}
		// A page has many blocks, and docrun limits the time of each.
		sc.Steps = append(sc.Steps, scenario.Step{Says: "the commands of docs/" + page.Path + " run as written", Limit: 30 * time.Minute, Prove: follow})
	}
	return []scenario.Scenario{sc, {Title: "The pages' objects are deleted", Steps: []scenario.Step{{Says: "no volume and no pool is left", Prove: removeDocsObjects}}}}
}

func removeDocsObjects(ctx context.Context, env *scenario.Environment) error {
	top, err := cluster.Checkout()
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"delete", "volumesnapshot,statefulset,pod,pvc", "-n", "default", "--all", "--wait"},
		{"delete", "-n", "default", "--ignore-not-found", "--wait", "-f", filepath.Join(top, "deploy", "examples")},
	} {
		if _, err := env.Kubectl(ctx, "", args...); err != nil {
			return err
		}
	}
	return scenario.NoVolumesRemain(ctx, env)
}
