package scenario

import (
	"bytes"
	"context"
	"fmt"

	"github.com/nodelvm/nodelvm/test/cluster"
)

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
