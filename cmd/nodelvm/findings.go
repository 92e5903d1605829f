package main

import (
	"context"
	"errors"

	"github.com/nodelvm/nodelvm/lvm"
)

// findings returns the conditions of this node's volumes and groups.
type findings func(context.Context) ([]lvm.Condition, error)

// healthOf combines several parts. It returns the findings of each, even if another one fails.
func healthOf(parts ...interface {
	Health(context.Context) ([]lvm.Condition, error)
}) findings {
	return func(ctx context.Context) ([]lvm.Condition, error) {
		var all []lvm.Condition
		var errs []error
		for _, part := range parts {
			found, err := part.Health(ctx)
			all, errs = append(all, found...), append(errs, err)
		}
		return all, errors.Join(errs...)
	}
}
