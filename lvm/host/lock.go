package host

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// locks holds one lock for each key; waiting ends with the caller's context. Waiters get a lock in the order of their arrival,
// except those of lockFirst and lockLast. The zero value is ready to use.
type locks struct {
	mu   sync.Mutex
	held map[string]*keyLock
}

// keyLock is a held lock with its waiters.
type keyLock struct {
	first, others, last []waiter

	owed int // how many of the others get the lock before the next of first
}

type waiter struct {
	granted chan struct{} // closed when the waiter gets the lock
	owes    int
}

// lock waits for the key's lock. The error is ctx's.
func (l *locks) lock(ctx context.Context, key string) (unlock func(), err error) {
	return l.wait(ctx, key, func(k *keyLock) *[]waiter { return &k.others }, 0)
}

// lockFirst waits for the key's lock ahead of the waiters of lock, unless the last lockFirst still owes them turns: after this
// one, as many of them get the lock as it owes. So neither kind starves the other.
func (l *locks) lockFirst(ctx context.Context, key string, owes int) (unlock func(), err error) {
	return l.wait(ctx, key, func(k *keyLock) *[]waiter { return &k.first }, owes)
}

// lockLast waits until the lock has no other waiters, but no longer than patience; then it waits as lock does.
func (l *locks) lockLast(ctx context.Context, key string, patience time.Duration) (unlock func(), err error) {
	idle, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	unlock, err = l.wait(idle, key, func(k *keyLock) *[]waiter { return &k.last }, 0)
	if err == nil || ctx.Err() != nil {
		return unlock, err
	}
	return l.lock(ctx, key)
}

// try acquires the key's lock if it is free.
func (l *locks) try(key string) (unlock func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.take(key)
}

// take does the same; the caller holds mu.
func (l *locks) take(key string) (unlock func(), ok bool) {
	if l.held[key] != nil {
		return nil, false
	}
	if l.held == nil {
		l.held = map[string]*keyLock{}
	}
	l.held[key] = &keyLock{}
	return func() { l.unlock(key) }, true
}

func (l *locks) wait(ctx context.Context, key string, queue func(*keyLock) *[]waiter, owes int) (unlock func(), err error) {
	l.mu.Lock()
	if unlock, ok := l.take(key); ok {
		l.mu.Unlock()
		return unlock, nil
	}
	k, w := l.held[key], waiter{make(chan struct{}), owes}
	*queue(k) = append(*queue(k), w)
	l.mu.Unlock()
	select {
	case <-w.granted:
		return func() { l.unlock(key) }, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	waiting := len(*queue(k))
	*queue(k) = slices.DeleteFunc(*queue(k), func(other waiter) bool { return other.granted == w.granted })
	left := len(*queue(k)) < waiting
	l.mu.Unlock()
	if !left { // it got the lock meanwhile
		l.unlock(key)
	}
	return nil, ctx.Err()
}

// unlock grants the lock to the next waiter.
func (l *locks) unlock(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.held[key]
	if next := k.next(); next != nil {
		close(next)
	} else {
		delete(l.held, key)
	}
}

// next removes the next waiter from its queue and returns its channel; nil if there is none.
func (k *keyLock) next() chan struct{} {
	queue := &k.others
	switch {
	case len(k.others) == 0 && len(k.first) == 0 && len(k.last) == 0:
		return nil
	case len(k.others) == 0 && len(k.first) == 0:
		queue, k.owed = &k.last, 0
	case len(k.others) == 0:
		queue, k.owed = &k.first, 0
	case len(k.first) > 0 && k.owed == 0:
		queue, k.owed = &k.first, k.first[0].owes
	default:
		k.owed = max(0, k.owed-1)
	}
	next := (*queue)[0]
	*queue = (*queue)[1:]
	return next.granted
}

// inFlight holds the operations in flight, at most one for each volume. A request equal to the one in flight joins it and gets
// its answer; any other request for the volume is refused. The zero value is ready to use.
type inFlight struct {
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

// do runs the operation in a context that outlives the caller's: no write stops half-way. A caller whose context ends gets
// KindBusy with ctx's error inside, and may join again.
func do[A any](ctx context.Context, f *inFlight, volume string, request any, run func(context.Context) (A, error)) (A, error) {
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

func (f *inFlight) join(volume string, request any, run func() (any, error)) (*operation, error) {
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

// has reports whether an operation for the volume is in flight.
func (f *inFlight) has(volume string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.under[volume] != nil
}

// count returns how many operations are in flight.
func (f *inFlight) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.under)
}

// close refuses new operations and waits for those in flight. The error is ctx's.
func (f *inFlight) close(ctx context.Context) error {
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
