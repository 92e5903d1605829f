package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Eventually asks again until ok holds; at the end of its time it fails with the last thing it saw.
func Eventually(ctx context.Context, ok func() error) error {
	var saw error
	for {
		err := ok()
		if err == nil {
			return nil
		}
		if saw == nil || !isOver(ctx) { // a question that the end of the time cuts off sees nothing
			saw = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within the time: %w", saw)
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// isOver tells whether the time has come to its end, even if the timer that says so is late.
func isOver(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// CleanUpContext gives a minute to what must be done even where the time of a step is over.
func CleanUpContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
}

// unlessEnded is eventually; it gives up when what reports its end there has ended, and leaves the report there.
func unlessEnded(ctx context.Context, ended chan error, what string, ok func() error) error {
	var end error
	err := Eventually(ctx, func() error {
		select {
		case report := <-ended:
			ended <- report
			end = errors.Join(errors.New(what+" has ended"), report)
			return nil
		default:
			return ok()
		}
	})
	return cmp.Or(err, end)
}
