package oplock

import (
	"context"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// Tasks are the goroutines that outlive the call that started them. Close waits for them.
type Tasks struct {
	closing context.Context // cancelled when the tasks must end
	stop    context.CancelFunc
	running sync.WaitGroup
	begin   sync.Mutex // nothing joins running once Wait waits for it
}

// NewTasks returns tasks that run until Stop.
func NewTasks() *Tasks {
	t := &Tasks{}
	t.closing, t.stop = context.WithCancel(context.Background())
	return t
}

// Context ends when the tasks must end.
func (t *Tasks) Context() context.Context { return t.closing }

// IsStopped reports whether the tasks must end.
func (t *Tasks) IsStopped() bool { return t.closing.Err() != nil }

// Stop ends Context, and refuses new tasks.
func (t *Tasks) Stop() {
	t.begin.Lock()
	defer t.begin.Unlock()
	t.stop()
}

// Drain waits for all tasks to end. The error is ctx's.
func (t *Tasks) Drain(ctx context.Context) error { return Await(ctx, &t.running) }

// Start starts a task, unless the tasks are stopped.
func (t *Tasks) Start(work func(context.Context)) {
	t.begin.Lock()
	defer t.begin.Unlock()
	if t.closing.Err() == nil {
		t.running.Go(func() { work(t.closing) })
	}
}

// StartLater starts a task after a pause, unless the tasks are stopped before.
func (t *Tasks) StartLater(pause time.Duration, work func()) {
	t.Start(func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-time.After(pause):
			work()
		}
	})
}

// Fork starts a task from an operation that Close waits for in any case.
func (t *Tasks) Fork(work func(context.Context)) {
	t.running.Go(func() { work(t.closing) })
}

// Join registers work in the caller's goroutine that is no request for one volume. Drain waits until leave is called, so that
// the next driver finds no operation under way. KindBusy: the tasks are stopped.
func (t *Tasks) Join() (leave func(), err error) {
	t.begin.Lock()
	defer t.begin.Unlock()
	if t.closing.Err() != nil {
		return nil, lvm.Errorf(lvm.KindBusy, "the driver is shutting down and starts no operation")
	}
	t.running.Add(1)
	return t.running.Done, nil
}
