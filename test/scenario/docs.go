package scenario

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/docrun"
)

// Follow returns what a step does to run the commands of a page of the documentation as written.
func Follow(page docrun.Page) func(context.Context, *Environment) error {
	return func(ctx context.Context, env *Environment) error {
		top, err := cluster.Checkout()
		if err != nil {
			return err
		}
		return docrun.Follow(ctx, env.Lab, top, page, env.Reporter.Note)
	}
}

// DeleteDocsObjects deletes what the pages' commands create, and waits until no volume is left.
func DeleteDocsObjects(ctx context.Context, env *Environment) error {
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
	return NoVolumesRemain(ctx, env)
}

// Shell runs a command as a user does in the lab's shell, with lines of any width.
func (env *Environment) Shell(ctx context.Context, command string) (string, error) {
	top, err := cluster.Checkout()
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = env.Lab.Shell(ctx, top, nil, &out, &out, "-c", command)
	return out.String(), err
}

// DoctorCommand is what a user enters to learn of faults.
const DoctorCommand = "kubectl nodelvm doctor"

// DoctorFindsNothing waits until the doctor has nothing to report.
func DoctorFindsNothing(ctx context.Context, env *Environment) error {
	return cluster.Eventually(ctx, func() error {
		said, err := env.Shell(ctx, DoctorCommand)
		if err != nil {
			err = fmt.Errorf("%w: %s", err, said)
		}
		return err
	})
}
