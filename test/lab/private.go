package lab

import (
	"context"
	"errors"
	"os"
)

// LabsVariable is the environment variable with the folder of a test run's labs. The suite stops the labs in it and removes it,
// also after an interrupted run.
const LabsVariable = "NODELVM_TEST_LABS"

// OpenPrivate returns a lab that no other run uses, and a function that stops it and removes its folder. With KEEP in the
// environment it returns the lab of Open(""), and the function does nothing.
func OpenPrivate(name string) (l *Lab, down func() error, err error) {
	if os.Getenv("KEEP") != "" {
		l, err := Open("")
		return l, func() error { return nil }, err
	}
	parent := os.Getenv(LabsVariable)
	if parent != "" {
		if err := os.MkdirAll(parent, 0o755); err != nil {
			return nil, nil, err
		}
	}
	dir, err := os.MkdirTemp(parent, name+"-")
	if err != nil {
		return nil, nil, err
	}
	if l, err = Open(dir); err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return l, func() error { return errors.Join(l.Down(context.Background()), os.RemoveAll(dir)) }, nil
}
