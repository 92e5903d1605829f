package oplock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// InFlight holds the operations in flight, at most one for each volume. A request equal to the one in flight joins it and gets
// its answer; any other request for the volume is refused. The zero value is ready to use.
type InFlight struct {
	mu     sync.Mutex
	under  map[string]*operation
	closed bool
	wait   sync.WaitGroup
}

type operation struct {
	request any // comparable
	done    chan struct{}
	answer  any
	err     error
}

// Do runs the operation in a context that outlives the caller's: no write stops half-way. A caller whose context ends gets
// KindBusy with ctx's error inside, and may join again.
func Do[A any](ctx context.Context, f *InFlight, volume string, request any, run func(context.Context) (A, error)) (A, error) {
	var none A
	if err := ctx.Err(); err != nil {
		return none, lvm.Errorf(lvm.KindBusy, "volume %s: the operation did not start: %w", volume, err)
	}
	fl, err := f.join(volume, request, func() (any, error) { return run(context.WithoutCancel(ctx)) })
	if err != nil {
		return none, err
	}
	select {
	case <-fl.done:
		answer, _ := fl.answer.(A)
		return answer, fl.err
	case <-ctx.Done():
		return none, lvm.Errorf(lvm.KindBusy, "volume %s: the operation continues in the background; retry for its result: %w", volume, ctx.Err())
	}
}

func (f *InFlight) join(volume string, request any, run func() (any, error)) (*operation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl := f.under[volume]; fl != nil {
		if fl.request != request {
			return nil, lvm.Errorf(lvm.KindBusy, "volume %s: another operation is in flight; retry when it has ended", volume)
		}
		return fl, nil
	}
	if f.closed {
		return nil, lvm.Errorf(lvm.KindBusy, "volume %s: the driver is shutting down and starts no operation", volume)
	}
	if f.under == nil {
		f.under = map[string]*operation{}
	}
	fl := &operation{request: request, done: make(chan struct{})}
	f.under[volume] = fl
	f.wait.Go(func() {
		fl.answer, fl.err = run()
		f.mu.Lock()
		delete(f.under, volume)
		f.mu.Unlock()
		close(fl.done)
	})
	return fl, nil
}

// Has reports whether an operation for the volume is in flight.
func (f *InFlight) Has(volume string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.under[volume] != nil
}

// Count returns how many operations are in flight.
func (f *InFlight) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.under)
}

// Close refuses new operations and waits for those in flight. The error is ctx's.
func (f *InFlight) Close(ctx context.Context) error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	return Await(ctx, &f.wait)
}

// Await waits for a group of goroutines to end. The error is ctx's.
func Await(ctx context.Context, group *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

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

// Exclusion keeps two kinds of work on one thing apart. Any number of works of one kind may be under way; none of the other kind begins meanwhile.
// It waits for nothing.
type Exclusion struct {
	mu       sync.Mutex
	underWay map[string]int // works by what they are on: each of the first kind is +1, each of the second -1
}

// Kind is a kind of work.
type Kind int

// The kinds of an Exclusion's work.
const (
	First  Kind = 1
	Second Kind = -1
)

// Begin reports whether no work of the other kind is under way. Then none begins until end is called.
func (x *Exclusion) Begin(on string, kind Kind) (end func(), ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.underWay[on]*int(kind) < 0 {
		return func() {}, false
	}
	if x.underWay == nil {
		x.underWay = map[string]int{}
	}
	x.underWay[on] += int(kind)
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.underWay[on] -= int(kind); x.underWay[on] == 0 {
			delete(x.underWay, on)
		}
	}, true
}
