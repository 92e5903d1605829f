package hosttest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/nodelvm/nodelvm/lvm"
)

// ZeroRecorder is a kernel that records what it zeroes. With StopAt it stops there, until it is interrupted.
type ZeroRecorder struct {
	lvm.Kernel
	StopAt lvm.Bytes

	mu    sync.Mutex
	spans []string
}

// Spans returns what the kernel was asked to zero, in order: "0-8 MiB".
func (z *ZeroRecorder) Spans() []string {
	z.mu.Lock()
	defer z.mu.Unlock()
	return slices.Clone(z.spans)
}

// Zero is of lvm.Kernel.
func (z *ZeroRecorder) Zero(ctx context.Context, d lvm.Device, from, to lvm.Bytes, done func(lvm.Bytes)) error {
	z.mu.Lock()
	z.spans = append(z.spans, fmt.Sprintf("%s-%s", strings.TrimSuffix(from.String(), " B"), to))
	z.mu.Unlock()
	if z.StopAt == 0 {
		return z.Kernel.Zero(ctx, d, from, to, done)
	}
	done(z.StopAt)
	<-ctx.Done()
	return ctx.Err()
}

// BlockedRunner is a runner whose commands in one group do not end until Release is closed.
type BlockedRunner struct {
	lvm.Runner
	Group   string
	Release chan struct{}
}

// Run is of lvm.Runner.
func (b BlockedRunner) Run(ctx context.Context, argv []string) ([]byte, error) {
	if slices.ContainsFunc(argv, func(arg string) bool { return arg == b.Group || strings.HasPrefix(arg, b.Group+"/") }) {
		<-b.Release
	}
	return b.Runner.Run(ctx, argv)
}
