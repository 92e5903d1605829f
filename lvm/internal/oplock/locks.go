package oplock

import (
	"context"
	"fmt"
	"log/slog"
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

// GroupLocks are the locks under which the driver changes volume groups, by the group's UUID, with the watchdog that reports a
// holder that keeps one for too long.
type GroupLocks struct {
	writers locks

	limit time.Duration // how long a holder may keep its lock
	log   *slog.Logger
	name  func(uuid lvm.VGUUID) lvm.VGName // of a group

	mu     sync.Mutex
	groups map[lvm.VGUUID]*watchedHolder // by group's UUID
}

// NewGroupLocks returns locks whose holders may keep them for limit; name returns a group's name for the log.
func NewGroupLocks(limit time.Duration, log *slog.Logger, name func(uuid lvm.VGUUID) lvm.VGName) *GroupLocks {
	return &GroupLocks{limit: limit, log: log, name: name}
}

// Acquire waits for the lock under which the driver changes one group. what describes the operation. KindBusy: ctx has ended, or
// the group is blocked.
func (l *GroupLocks) Acquire(ctx context.Context, uuid lvm.VGUUID, what string) (unlock func(), err error) {
	return l.lockBy(ctx, uuid, what, l.writers.lock)
}

// AcquireFirst is acquire for what a pod waits for: it goes ahead of the waiters of acquire. owes: how many of the other waiters get the lock after it.
func (l *GroupLocks) AcquireFirst(ctx context.Context, uuid lvm.VGUUID, what string, owes int) (unlock func(), err error) {
	return l.lockBy(ctx, uuid, what, func(ctx context.Context, uuid lvm.VGUUID) (func(), error) {
		return l.writers.lockFirst(ctx, uuid, owes)
	})
}

// AcquireLast is acquire for what no request waits for: it lets the other waiters go first, but no longer than patience.
func (l *GroupLocks) AcquireLast(ctx context.Context, uuid lvm.VGUUID, what string, patience time.Duration) (unlock func(), err error) {
	return l.lockBy(ctx, uuid, what, func(ctx context.Context, uuid lvm.VGUUID) (func(), error) {
		return l.writers.lockLast(ctx, uuid, patience)
	})
}

// TryAcquire is acquire if the lock is free.
func (l *GroupLocks) TryAcquire(uuid lvm.VGUUID, what string) (unlock func(), ok bool) {
	if uuid == "" {
		return nil, false
	}
	unlock, ok = l.writers.try(uuid)
	if !ok {
		return nil, false
	}
	return l.watched(uuid, what, unlock), true
}

func (l *GroupLocks) lockBy(ctx context.Context, uuid lvm.VGUUID, what string, lock func(context.Context, lvm.VGUUID) (func(), error)) (unlock func(), err error) {
	waiting, stop := l.UntilBlocked(ctx, uuid)
	defer stop()
	unlock, err = lock(waiting, uuid)
	if err != nil {
		return nil, lvm.Errorf(lvm.KindBusy, "%s must wait for its volume group: %w", what, context.Cause(waiting))
	}
	return l.watched(uuid, what, unlock), nil
}

func (l *GroupLocks) watched(uuid lvm.VGUUID, what string, unlock func()) func() {
	release := l.hold(uuid, what)
	return func() {
		release()
		unlock()
	}
}

// The watchdog reports groups whose lock one operation holds for too long: a command or flush waits for an unresponsive disk.
// The driver never kills the command, but later operations on the group fail at once, and other groups are not affected.

// watchedHolder describes the holder of a group's lock.
type watchedHolder struct {
	since   time.Time
	running string // the LVM command that runs now, or ran last; "" for none
	hung    error  // why the group is blocked; nil if it is not
	holder  int    // counts the holders, so that a late alarm ignores the next one
	waiters map[*context.CancelCauseFunc]bool
}

func (l *GroupLocks) group(uuid lvm.VGUUID) *watchedHolder {
	if l.groups == nil {
		l.groups = map[lvm.VGUUID]*watchedHolder{}
	}
	g := l.groups[uuid]
	if g == nil {
		g = &watchedHolder{waiters: map[*context.CancelCauseFunc]bool{}}
		l.groups[uuid] = g
	}
	return g
}

// UntilBlocked returns a context that also ends when the group becomes blocked, which is then its cause.
func (l *GroupLocks) UntilBlocked(ctx context.Context, uuid lvm.VGUUID) (waiting context.Context, stop func()) {
	waiting, cancel := context.WithCancelCause(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.group(uuid)
	if g.hung != nil {
		cancel(g.hung)
	}
	g.waiters[&cancel] = true
	return waiting, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(g.waiters, &cancel)
		cancel(nil)
	}
}

// hold starts to watch the operation that now holds the group's lock.
func (l *GroupLocks) hold(uuid lvm.VGUUID, what string) (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.group(uuid)
	g.since, g.running = time.Now(), ""
	g.holder++
	turn := g.holder
	alarm := time.AfterFunc(l.limit, func() { l.alarm(uuid, turn, what) })
	return func() {
		alarm.Stop()
		l.mu.Lock()
		defer l.mu.Unlock()
		g.holder++
		if g.hung != nil {
			g.hung = nil
			l.log.Info("volume group no longer blocked", "vg", l.name(uuid), "vg_uuid", uuid, "operation", what, "after", time.Since(g.since).Round(time.Second))
		}
	}
}

func (l *GroupLocks) alarm(uuid lvm.VGUUID, turn int, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.group(uuid)
	if g.holder != turn {
		return
	}
	culprit := "an operation"
	if g.running != "" {
		culprit = "the command lvm " + g.running
	}
	g.hung = fmt.Errorf("%s has been running since %s and exceeded its time limit, probably because a disk is unresponsive: see the kernel's log",
		culprit, g.since.Format(time.TimeOnly))
	l.log.Error("LVM command exceeded its time limit; volume group blocked, capacity reported as 0", "vg", l.name(uuid), "vg_uuid", uuid, "operation", what, "error", g.hung)
	for cancel := range g.waiters {
		(*cancel)(g.hung)
	}
}

// NoteCommand records the LVM command that the holder of the group's lock runs.
func (l *GroupLocks) NoteCommand(uuid lvm.VGUUID, command string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.group(uuid).running = command
}

// BlockedFor returns for how long, and why, a group is blocked; nil if it is not.
func (l *GroupLocks) BlockedFor(uuid lvm.VGUUID) (since time.Duration, hung error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.groups[uuid]
	if g == nil || g.hung == nil {
		return 0, nil
	}
	return time.Since(g.since), g.hung
}
