package lvm

import (
	"context"
	"sync"
	"time"
)

// wiper is the background work on deleted volumes: zeroing what they held, then giving their extents back.
type wiper struct {
	context context.Context // done when the Host closes
	stop    context.CancelFunc
	groups  locks // by group's UUID: one wipe at a time
	workers sync.WaitGroup

	mu      sync.Mutex
	pending map[string]Volume // by the volume's UUID
}

// A wipe that failed is tried again after a pause that doubles from the first to the last of these.
const (
	wipeFirstPause = time.Second
	wipeLastPause  = 5 * time.Minute
)

// wipe takes up a volume in the state deleting, once.
func (h *Host) wipe(v Volume) {
	w := &h.wiper
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, under := w.pending[v.UUID]; under || w.context.Err() != nil {
		return
	}
	if w.pending == nil {
		w.pending = map[string]Volume{}
	}
	w.pending[v.UUID] = v
	w.workers.Go(func() { h.wipeUntilDone(v) })
}

func (h *Host) wipeUntilDone(v Volume) {
	w := &h.wiper
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.pending, v.UUID)
	}()
	for pause := wipeFirstPause; ; pause = min(2*pause, wipeLastPause) {
		err := h.wipeOnce(w.context, v)
		if err == nil || w.context.Err() != nil {
			return
		}
		h.log.Warn("a deleted volume still holds its extents; it is tried again", "volume", v.ID.String(), "group", v.Group, "pause", pause, "error", err)
		select {
		case <-w.context.Done():
			return
		case <-time.After(pause):
		}
	}
}

// wipeOnce zeroes the volume and removes it. Zeroing happens outside of the group's lock: it can take hours.
func (h *Host) wipeOnce(ctx context.Context, v Volume) error {
	done, err := h.wiper.groups.lock(ctx, v.ID.VG)
	if err != nil {
		return err
	}
	defer done()
	if v.Class.Wipe != WipeNone {
		path, err := h.device(ctx, v)
		if KindOf(err) == KindNotFound {
			return nil // an admin removed it
		}
		if err != nil {
			return err
		}
		if err := h.machine.Kernel.Zero(ctx, path); err != nil {
			return err
		}
	}
	return h.removeIfStill(ctx, v)
}

// backlog sums up the volumes that are deleted and not yet wiped.
func (w *wiper) backlog() Bytes {
	w.mu.Lock()
	defer w.mu.Unlock()
	var sum Bytes
	for _, v := range w.pending {
		sum += v.Size
	}
	return sum
}

// wait waits for the workers to end. The error is ctx's.
func (w *wiper) wait(ctx context.Context) error {
	return await(ctx, &w.workers)
}
