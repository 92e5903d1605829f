package scenario

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/lab"
)

// Raise starts the lab of `make demo` and installs the driver in it exactly as shipped: the image that `make image`
// writes, the manifest in deploy/. The caller lowers the lab with l.Down, whatever Raise answers.
func Raise(ctx context.Context, l *lab.Lab, out io.Writer) (*Environment, error) {
	return RaiseWith(ctx, l, lab.UpOptions{Nodes: 3}, out)
}

// RaiseWith is Raise with other nodes.
func RaiseWith(ctx context.Context, l *lab.Lab, opt lab.UpOptions, out io.Writer) (*Environment, error) {
	opt.ControlPlane, opt.Progress = true, out
	if err := l.Up(ctx, opt); err != nil {
		return nil, err
	}
	image, err := cluster.BuildImage(ctx, out)
	if err != nil {
		return nil, err
	}
	cluster, err := cluster.New(l, cluster.NewReporter(out))
	if err != nil {
		return nil, err
	}
	env := &Environment{Cluster: cluster}
	return env, env.install(ctx, image)
}

func (env *Environment) install(ctx context.Context, image string) error {
	top, err := cluster.Checkout()
	if err != nil {
		return err
	}
	env.Reporter.BeginScenario("nodelvm is installed")
	for _, step := range []Step{
		{Says: "its image is imported under the name that the manifest asks for", Prove: func(ctx context.Context, env *Environment) error {
			return env.Lab.ImportImage(ctx, image)
		}},
		{Says: "deploy/nodelvm.yaml is applied as it is", Prove: func(ctx context.Context, env *Environment) error {
			return env.ApplyDriver(ctx, filepath.Join(top, "deploy", "nodelvm.yaml"))
		}},
		{Says: "its DaemonSet is ready on every node", Prove: func(ctx context.Context, env *Environment) error {
			_, err := env.Kubectl(ctx, "", "rollout", "status", "-n", cluster.DriverNamespace, cluster.DaemonSet)
			return err
		}},
	} {
		if err := env.prove(ctx, step); err != nil {
			return fmt.Errorf("%s: %w%s", step.Says, err, env.Diagnosis(ctx))
		}
	}
	return nil
}
