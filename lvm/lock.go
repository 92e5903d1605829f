package lvm

import (
	"context"
	"sync"
)

// locks is one lock for each key; waiting for one ends with the caller's context. The zero value is ready to use.
type locks struct {
	mu   sync.Mutex
	held map[string]*keyLock
}

type keyLock struct {
	token chan struct{} // holds one value while the lock is free
	users int           // those who hold it or wait for it
}

// lock waits for the key's lock. The error is ctx's.
func (l *locks) lock(ctx context.Context, key string) (unlock func(), err error) {
	k := l.enter(key)
	select {
	case <-k.token:
		return l.unlocker(key, k), nil
	case <-ctx.Done():
		l.leave(key, k)
		return nil, ctx.Err()
	}
}

// try takes the key's lock if it is free.
func (l *locks) try(key string) (unlock func(), ok bool) {
	k := l.enter(key)
	select {
	case <-k.token:
		return l.unlocker(key, k), true
	default:
		l.leave(key, k)
		return nil, false
	}
}

func (l *locks) enter(key string) *keyLock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[string]*keyLock{}
	}
	k := l.held[key]
	if k == nil {
		k = &keyLock{token: make(chan struct{}, 1)}
		k.token <- struct{}{}
		l.held[key] = k
	}
	k.users++
	return k
}

func (l *locks) unlocker(key string, k *keyLock) func() {
	return func() {
		k.token <- struct{}{}
		l.leave(key, k)
	}
}

func (l *locks) leave(key string, k *keyLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(l.held, key)
	}
}

// flights are the operations under way, at most one for each volume. A request equal to the one under way joins it and
// gets its answer; another one for the same volume is refused. The zero value is ready to use.
type flights struct {
	mu     sync.Mutex
	under  map[string]*flight
	closed bool
	wait   sync.WaitGroup
}

type flight struct {
	request any // comparable
	done    chan struct{}
	answer  any
	err     error
}

// fly runs the operation with a context that lives on when the caller's ends: what has begun to write is never left
// half-way. The caller gets KindBusy then, with ctx's error inside, and may join again.
func fly[A any](ctx context.Context, f *flights, volume string, request any, run func(context.Context) (A, error)) (A, error) {
	var none A
	if err := ctx.Err(); err != nil {
		return none, Errorf(KindBusy, "volume %s: nothing was begun: %w", volume, err)
	}
	fl, err := f.board(volume, request, func() (any, error) { return run(context.WithoutCancel(ctx)) })
	if err != nil {
		return none, err
	}
	select {
	case <-fl.done:
		answer, _ := fl.answer.(A)
		return answer, fl.err
	case <-ctx.Done():
		return none, Errorf(KindBusy, "volume %s: the operation goes on; ask again for its result: %w", volume, ctx.Err())
	}
}

func (f *flights) board(volume string, request any, run func() (any, error)) (*flight, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl := f.under[volume]; fl != nil {
		if fl.request != request {
			return nil, Errorf(KindBusy, "volume %s: another operation is under way; ask again when it has ended", volume)
		}
		return fl, nil
	}
	if f.closed {
		return nil, Errorf(KindBusy, "volume %s: the driver is shutting down and begins nothing new", volume)
	}
	if f.under == nil {
		f.under = map[string]*flight{}
	}
	fl := &flight{request: request, done: make(chan struct{})}
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

// count tells how many operations are under way.
func (f *flights) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.under)
}

// close refuses new operations and waits for those under way. The error is ctx's.
func (f *flights) close(ctx context.Context) error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	return await(ctx, &f.wait)
}

// await waits for a group of goroutines to end. The error is ctx's.
func await(ctx context.Context, group *sync.WaitGroup) error {
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
