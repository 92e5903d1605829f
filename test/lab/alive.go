package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// ControlPlaneError returns an error that names the control plane's process that has ended, with the end of its log. It returns nil
// while all run, or if the lab has no control plane.
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

// NodeError returns an error that names the node whose kernel panicked, with the end of its console, or nil.
func (l *Lab) NodeError() error {
	for _, name := range l.NodeNames() {
		if l.alive(name) {
			continue
		}
		if end := l.endOfLog(name); strings.Contains(end, "Kernel panic") && !strings.Contains(end, "Attempted to kill init") { // a shutdown ends with that panic
			return l.logged(name, fmt.Errorf("the kernel of %s panicked:\n%s", name, end))
		}
	}
	return nil
}

// WhileHealthy derives a context that ends when a process of the control plane ends or a node's kernel panics. Its cause is the
// error of ControlPlaneError or NodeError.
func (l *Lab) WhileHealthy(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		for ctx.Err() == nil {
			if err := errors.Join(l.ControlPlaneError(), l.NodeError()); err != nil {
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
