package engine

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
)

// reader reads the node's volume groups: engine.ReadDisks or engine.ReadState.
type reader func(context.Context) (lvm.State, error)

// Locked acquires a group's lock, and reads the disks under it.
func (e *Engine) Locked(ctx context.Context, uuid lvm.VGUUID, what string, read reader) (s lvm.State, unlock func(), err error) {
	unlock, err = e.Locks.Acquire(ctx, uuid, what)
	if err != nil {
		return lvm.State{}, nil, err
	}
	return readLocked(ctx, unlock, read)
}

// How many other operations, such as creates, get a group's lock after one that a pod waits for. Each activation needs its own
// command, but one command tags all new volumes as ready: during a burst of creates it pays to let several go first.
const (
	owedByActivation = 1
	OwedByMarking    = 4
)

// LockedFirst is locked for what a pod waits for.
func (e *Engine) LockedFirst(ctx context.Context, uuid lvm.VGUUID, what string, owes int, read reader) (s lvm.State, unlock func(), err error) {
	unlock, err = e.Locks.AcquireFirst(ctx, uuid, what, owes)
	if err != nil {
		return lvm.State{}, nil, err
	}
	return readLocked(ctx, unlock, read)
}

func readLocked(ctx context.Context, unlock func(), read reader) (lvm.State, func(), error) {
	s, err := read(ctx)
	if err != nil {
		unlock()
		return lvm.State{}, nil, err
	}
	return s, unlock, nil
}
