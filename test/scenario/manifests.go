package scenario

import (
	"context"
	"embed"
	"fmt"
	"strings"

	"github.com/nodelvm/nodelvm/test/cluster"
)

//go:embed manifests
var manifests embed.FS

// Apply returns what a step does to send some of the scenarios' manifests to the API server.
func Apply(names ...string) func(context.Context, *Environment) error {
	return func(ctx context.Context, env *Environment) error {
		for _, name := range names {
			if err := env.ApplyWith(ctx, name); err != nil {
				return err
			}
		}
		return nil
	}
}

// PodReady returns what a step does to wait for a pod.
func PodReady(name string) func(context.Context, *Environment) error {
	return func(ctx context.Context, env *Environment) error {
		_, err := env.WaitPodReady(ctx, name)
		return err
	}
}

// InOrder returns what does these things one after the other, up to the first that fails.
func InOrder(steps ...func(context.Context, *Environment) error) func(context.Context, *Environment) error {
	return func(ctx context.Context, env *Environment) error {
		for _, step := range steps {
			if err := step(ctx, env); err != nil {
				return err
			}
		}
		return nil
	}
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
	if err := Apply("classes.yaml", "life-classes.yaml")(ctx, env); err != nil {
		return err
	}
	_, err := env.Kubectl(ctx, "", "delete", "storageclass", "too-early", "--ignore-not-found")
	return err
}

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
