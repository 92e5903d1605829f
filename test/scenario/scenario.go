package scenario

import (
	"context"
	"errors"
	"time"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
	"github.com/nodelvm/nodelvm/test/cluster"
)

// Environment is what scenarios run on: a cluster, with methods for what several scenarios do with it.
type Environment struct{ *cluster.Cluster }

// Scenario is steps that build on each other.
type Scenario struct {
	Title string
	Steps []Step
}

// Step proves one sentence.
type Step struct {
	Says  string
	Limit time.Duration // how long it may take on an idle machine; 0 means ten minutes
	Prove func(context.Context, *Environment) error
}

// Failure is a step that did not hold.
type Failure struct {
	Step string // what it says
	Err  error  // what was seen instead
}

func (f *Failure) Error() string { return f.Step + ": " + f.Err.Error() }

// Unwrap implements the convention of package errors.
func (f *Failure) Unwrap() error { return f.Err }

// Run runs one scenario: it stops at the first step that does not hold, with a Failure, and closes with a table of what is where, if that has changed.
// It ends at once, with the cause, when a process of the control plane ends.
func (env *Environment) Run(ctx context.Context, sc Scenario) error {
	ctx, stop := env.Lab.WhileHealthy(ctx)
	defer stop()
	env.Reporter.BeginScenario(sc.Title)
	for _, step := range sc.Steps {
		if err := env.prove(ctx, step); err != nil {
			return &Failure{Step: step.Says, Err: err}
		}
	}
	return env.ShowVolumes(ctx)
}

func (env *Environment) prove(ctx context.Context, step Step) error {
	limit := step.Limit
	if limit == 0 {
		limit = 10 * time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, wait.Limit(limit))
	defer cancel()
	done := env.Reporter.Step(step.Says)
	err := step.Prove(ctx, env)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	done(err)
	return err
}

// Storage classes of the manifests.
const (
	FastClass    = "fast"    // linear, of classes.yaml
	ThinClass    = "thin"    // of life-classes.yaml
	GrowingClass = "growing" // linear, of load-classes.yaml
)

// Nodes of the lab.
const (
	FirstNode = "node-1" // where manifests and scenarios hold claims that name their node
	BigNode   = "node-3" // the lab gives it the largest disks
)

// AnnSelectedNode is the annotation of a claim with the node that the scheduler selected.
const AnnSelectedNode = "volume.kubernetes.io/selected-node"

// WorkloadLabel selects the claims of load-claim.yaml, and what a workload creates.
const WorkloadLabel = "nodelvm-test=workload"

// BusyboxImage is the image of the scenarios' pods.
const BusyboxImage = "registry.k8s.io/e2e-test-images/busybox:1.37.0-2"
