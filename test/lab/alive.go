package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
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
	l.restarting.RLock()
	defer l.restarting.RUnlock()
	names := controlPlaneNames
	if st.Services {
		names = slices.Concat(names, servicesNames)
	}
	for _, name := range names {
		if !l.alive(name) {
			return l.logged(name, fmt.Errorf("%s has ended, and no request to this cluster is answered:\n%s", name, l.endOfLog(name)))
		}
	}
	return nil
}

// NodeError returns an error that names the node whose kernel panicked, with the part of its console that shows the panic, or nil.
func (l *Lab) NodeError() error {
	for _, name := range l.NodeNames() {
		if l.alive(name) {
			continue
		}
		if lines := panicLines(l.readLog(name)); len(lines) > 0 {
			return l.logged(name, fmt.Errorf("the kernel of %s panicked:\n%s", name, strings.Join(lines, "\n")))
		}
	}
	return nil
}

// panicLines returns the lines of a console around the panic of its last boot, and none without a panic. A shutdown, too, ends with
// a panic, that of init's end: panicLines ignores it.
func panicLines(console string) []string {
	lines := strings.Split(console[max(0, strings.LastIndex(console, "Linux version ")):], "\n")
	at := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, "Kernel panic") })
	if at < 0 || strings.Contains(lines[at], "Attempted to kill init") {
		return nil
	}
	return lines[max(0, at-10):min(len(lines), at+tailLines)]
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
	return strings.Join(lastLines([]byte(l.readLog(name)), tailLines), "\n")
}

// readLog returns the log of a process, or why it cannot be read.
func (l *Lab) readLog(name string) string {
	text, err := os.ReadFile(l.logFile(name))
	if err != nil {
		return err.Error()
	}
	return string(text)
}
