package oplock

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
	held map[lvm.VGUUID]*keyLock
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
func (l *locks) lock(ctx context.Context, key lvm.VGUUID) (unlock func(), err error) {
	return l.wait(ctx, key, func(k *keyLock) *[]waiter { return &k.others }, 0)
}

// lockFirst waits for the key's lock ahead of the waiters of lock, unless the last lockFirst still owes them turns: after this
// one, as many of them get the lock as it owes. So neither kind starves the other.
func (l *locks) lockFirst(ctx context.Context, key lvm.VGUUID, owes int) (unlock func(), err error) {
	return l.wait(ctx, key, func(k *keyLock) *[]waiter { return &k.first }, owes)
}

// lockLast waits until the lock has no other waiters, but no longer than patience; then it waits as lock does.
func (l *locks) lockLast(ctx context.Context, key lvm.VGUUID, patience time.Duration) (unlock func(), err error) {
	idle, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	unlock, err = l.wait(idle, key, func(k *keyLock) *[]waiter { return &k.last }, 0)
	if err == nil || ctx.Err() != nil {
		return unlock, err
	}
	return l.lock(ctx, key)
}

// try acquires the key's lock if it is free.
func (l *locks) try(key lvm.VGUUID) (unlock func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tryLocked(key)
}

// tryLocked does the same; the caller holds mu.
func (l *locks) tryLocked(key lvm.VGUUID) (unlock func(), ok bool) {
	if l.held[key] != nil {
		return nil, false
	}
	if l.held == nil {
		l.held = map[lvm.VGUUID]*keyLock{}
	}
	l.held[key] = &keyLock{}
	return func() { l.unlock(key) }, true
}

func (l *locks) wait(ctx context.Context, key lvm.VGUUID, queue func(*keyLock) *[]waiter, owes int) (unlock func(), err error) {
	l.mu.Lock()
	if unlock, ok := l.tryLocked(key); ok {
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
func (l *locks) unlock(key lvm.VGUUID) {
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
