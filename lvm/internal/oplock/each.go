package oplock

import (
	"errors"
	"sync"

	"github.com/nodelvm/nodelvm/lvm"
)

// EachAtOnce calls do for all groups concurrently.
func EachAtOnce(groups []lvm.VGUUID, do func(group lvm.VGUUID) error) error {
	errs := make([]error, len(groups))
	var wait sync.WaitGroup
	for i, group := range groups {
		wait.Go(func() { errs[i] = do(group) })
	}
	wait.Wait()
	return errors.Join(errs...)
}
