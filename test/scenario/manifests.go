package scenario

import (
	"context"
	"embed"
	"strings"
)

//go:embed manifests
var manifests embed.FS

// Apply returns what a step does to send one of the scenarios' manifests to the API server.
func Apply(name string) func(context.Context, *Environment) error {
	return func(ctx context.Context, env *Environment) error { return env.ApplyWith(ctx, name) }
}

// ApplyWith sends a manifest with words replaced: oldNew is pairs of them.
func (env *Environment) ApplyWith(ctx context.Context, name string, oldNew ...string) error {
	text, err := manifests.ReadFile("manifests/" + name)
	if err != nil {
		return err
	}
	_, err = env.Kubectl(ctx, strings.NewReplacer(oldNew...).Replace(string(text)), "apply", "-f", "-")
	return err
}

// CreateClasses creates the storage classes of classes.yaml and life-classes.yaml, but for the one that no claim can use.
func CreateClasses(ctx context.Context, env *Environment) error {
	for _, file := range []string{"classes.yaml", "life-classes.yaml"} {
		if err := Apply(file)(ctx, env); err != nil {
			return err
		}
	}
	_, err := env.Kubectl(ctx, "", "delete", "storageclass", "too-early", "--ignore-not-found")
	return err
}
