package lab

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// ControlPlaneError answers which process of the control plane has ended, with the end of its log; nil while all run, or if
// the lab has no control plane.
func (l *Lab) ControlPlaneError() error {
	st, err := l.loadState()
	if err != nil || !st.ControlPlane {
		return err
	}
	for _, name := range controlPlaneNames {
		if !l.alive(name) {
			return l.logged(name, fmt.Errorf("%s has ended, and no request to this cluster is answered:\n%s", name, l.endOfLog(name)))
		}
	}
	return nil
}

// WithControlPlane derives a context that ends, with ControlPlaneError as its cause, when a process of the control plane ends.
func (l *Lab) WithControlPlane(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		for ctx.Err() == nil {
			if err := l.ControlPlaneError(); err != nil {
				cancel(err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

func (l *Lab) endOfLog(name string) string {
	text, err := os.ReadFile(l.logFile(name))
	if err != nil {
		return err.Error()
	}
	return strings.Join(lastLines(text, tailLines), "\n")
}
