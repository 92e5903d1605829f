// Package scenario is what `make demo` tells and `make test` checks: a PostgreSQL StatefulSet gets LVM
// volumes on the nodes that the scheduler chose.
//
// It is one list of acts. Each act is a list of steps; each step proves one sentence against the running cluster and
// against LVM itself, read on the node with an admin's own tools, and fails with what it saw instead. The acts build
// on each other and are run in order; the last one deletes everything and finds the figures of the first again.
package scenario

import (
	"context"
	"errors"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/nodelvm/nodelvm/test/lab"
)

// Namespace is where the scenario's pods and claims live.
const Namespace = "demo"

// Names that the driver promises; the scenario holds it to them.
const (
	Driver      = "nodelvm.io"
	TopologyKey = "topology.nodelvm.io/node"
)

// Stage is what an act runs on: a running lab, its API server, and a reporter.
type Stage struct {
	Lab      *lab.Lab
	Client   kubernetes.Interface
	Narrator *Narrator

	freeAtFirst map[string]int64  // node -> free extents when the curtain rose
	rows        map[string]string // pod -> fingerprint of its database
	lost        volume            // what was on the node that was lost
}

// NewStage connects to a lab that is up.
func NewStage(l *lab.Lab, n *Narrator) (*Stage, error) {
	config, err := l.RESTConfig()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Stage{Lab: l, Client: client, Narrator: n, freeAtFirst: map[string]int64{}, rows: map[string]string{}}, nil
}

// Act is one part of the scenario.
type Act struct {
	Title string
	Steps []Step
}

// Step proves one sentence.
type Step struct {
	Says  string
	Limit time.Duration // how long it may take; 0 means ten minutes: nodes share the processors of a machine that may be slow and busy
	Prove func(context.Context, *Stage) error
}

// Failure is a step that did not hold.
type Failure struct {
	Step string // what it says
	Err  error  // what was seen instead
}

func (f *Failure) Error() string { return f.Step + ": " + f.Err.Error() }

// Unwrap implements the convention of package errors.
func (f *Failure) Unwrap() error { return f.Err }

// Acts returns the whole scenario in order.
func Acts() []Act {
	return []Act{
		topologyAndCapacity(),
		delayedBinding(),
		dataStays(),
		power(),
		placement(),
		blockAndXFS(),
		cleanUp(),
	}
}

// Run performs one act: it stops at the first step that does not hold, with a Failure, and closes with a table of what is where.
// It ends at once, with the cause, when a process of the control plane ends.
func (s *Stage) Run(ctx context.Context, act Act) error {
	ctx, stop := s.Lab.WithControlPlane(ctx)
	defer stop()
	s.Narrator.Act(act.Title)
	for _, step := range act.Steps {
		if err := s.prove(ctx, step); err != nil {
			return &Failure{Step: step.Says, Err: err}
		}
	}
	return s.showVolumes(ctx)
}

func (s *Stage) prove(ctx context.Context, step Step) error {
	limit := step.Limit
	if limit == 0 {
		limit = 10 * time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := s.Narrator.Step(step.Says)
	err := step.Prove(ctx, s)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	done(err)
	return err
}
