package oplock

import (
	"errors"
	"sync"
)

// EachAtOnce calls do for all groups concurrently.
func EachAtOnce(groups []string, do func(group string) error) error {
	errs := make([]error, len(groups))
	var wait sync.WaitGroup
	for i, group := range groups {
		wait.Go(func() { errs[i] = do(group) })
	}
	wait.Wait()
	return errors.Join(errs...)
}
