package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Eventually calls ok until it returns nil. When ctx ends, it fails with the last error of ok.
func Eventually(ctx context.Context, ok func() error) error {
	var saw error
	for {
		err := ok()
		if err == nil {
			return nil
		}
		if saw == nil || !isOver(ctx) { // an error because ctx ended explains nothing
			saw = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within the time: %w", saw)
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// isOver reports whether ctx has ended, or its deadline has passed even though its timer is late.
func isOver(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// CleanUpContext returns a context of one minute for work that a step must do even after its time limit.
func CleanUpContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
}

// UnlessEnded is Eventually, but fails as soon as ended has a report. It leaves the report in the channel.
func UnlessEnded(ctx context.Context, ended chan error, what string, ok func() error) error {
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
