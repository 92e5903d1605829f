package oplock

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

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
