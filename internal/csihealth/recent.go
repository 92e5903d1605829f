package csihealth

import (
	"context"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// recently is how old the conditions of an answer may be. The kubelet asks for one volume after the other.
const recently = 10 * time.Second

// Recent shares a reading of the node's conditions between calls.
type Recent struct {
	read  func(context.Context) ([]lvm.Condition, error)
	now   func() time.Time
	turn  chan struct{} // has an element while no call reads
	found []lvm.Condition
	until time.Time // when found expires
}

// NewRecent returns one without a reading; read returns the conditions of this node's volumes and groups.
func NewRecent(read func(context.Context) ([]lvm.Condition, error)) *Recent {
	r := &Recent{read: read, now: time.Now, turn: make(chan struct{}, 1)}
	r.turn <- struct{}{}
	return r
}

// Conditions returns conditions that are ten seconds old at most. It returns none with an error: CSI's caller keeps what it knows then,
// and must not take an incomplete list for a recovery.
func (r *Recent) Conditions(ctx context.Context) ([]lvm.Condition, error) {
	select {
	case <-r.turn:
		defer func() { r.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, lvm.Errorf(lvm.KindBusy, "the check of this node's volumes takes long: %w", ctx.Err())
	}
	began := r.now()
	if began.Before(r.until) {
		return r.found, nil
	}
	found, err := r.read(ctx)
	if err == nil && ctx.Err() != nil { // a part that ctx interrupted has left out what it did not check
		err = lvm.Errorf(lvm.KindBusy, "the check of this node's volumes was interrupted: %w", ctx.Err())
	}
	if err != nil {
		return nil, err
	}
	r.found, r.until = found, began.Add(recently)
	return found, nil
}
