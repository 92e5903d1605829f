package oplock

import (
	"context"
	"sync"

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
