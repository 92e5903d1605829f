package scenario

import (
	"context"
	"embed"
)

//go:embed manifests
var manifests embed.FS

// apply sends one of the scenario's manifests to the API server.
func apply(name string) func(context.Context, *Environment) error {
	return func(ctx context.Context, env *Environment) error {
		text, err := manifests.ReadFile("manifests/" + name)
		if err != nil {
			return err
		}
		_, err = env.Kubectl(ctx, string(text), "apply", "-f", "-")
		return err
	}
}
