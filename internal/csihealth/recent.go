package csihealth

import (
	"context"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// recently is how old the conditions of an answer may be. The kubelet asks for one volume after the other.
const recently = 10 * time.Second

// Found is what a reading of this node found.
type Found struct {
	Conditions []lvm.Condition
	Volumes    map[lvm.ID]bool // the volumes of this cluster that are ready
}

// Recent shares a reading of the node's conditions and volumes between calls: a call about a healthy volume reads no disk.
type Recent struct {
	read  func(context.Context) ([]lvm.Condition, error)
	list  func(context.Context) ([]lvm.Volume, error)
	now   func() time.Time
	turn  chan struct{} // has an element while no call reads
	found Found
	until time.Time // when found expires
}

// NewRecent returns one without a reading; read returns the conditions of this node's volumes and groups, and list its ready volumes.
func NewRecent(read func(context.Context) ([]lvm.Condition, error), list func(context.Context) ([]lvm.Volume, error)) *Recent {
	r := &Recent{read: read, list: list, now: time.Now, turn: make(chan struct{}, 1)}
	r.turn <- struct{}{}
	return r
}

// Found returns what was found in the last ten seconds. It returns nothing with an error: CSI's caller keeps what it knows then, and must not
// take an incomplete list for a recovery.
func (r *Recent) Found(ctx context.Context) (Found, error) {
	select {
	case <-r.turn:
		defer func() { r.turn <- struct{}{} }()
	case <-ctx.Done():
		return Found{}, lvm.Errorf(lvm.KindBusy, "the check of this node's volumes takes long: %w", ctx.Err())
	}
	began := r.now()
	if began.Before(r.until) {
		return r.found, nil
	}
	found, err := r.readAll(ctx)
	if err == nil && ctx.Err() != nil { // a part that ctx interrupted has left out what it did not check
		err = lvm.Errorf(lvm.KindBusy, "the check of this node's volumes was interrupted: %w", ctx.Err())
	}
	if err != nil {
		return Found{}, err
	}
	r.found, r.until = found, began.Add(recently)
	return found, nil
}

func (r *Recent) readAll(ctx context.Context) (found Found, err error) {
	if found.Conditions, err = r.read(ctx); err != nil {
		return Found{}, err
	}
	volumes, err := r.list(ctx)
	found.Volumes = make(map[lvm.ID]bool, len(volumes))
	for _, v := range volumes {
		found.Volumes[v.ID] = true
	}
	return found, err
}
