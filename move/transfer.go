package move

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// segment is how much is written before it is flushed.
const segment = 256 * lvm.MiB

// How often the target's tags say how far a copy is: a restart copies at most so much again.
const (
	noteSize  = 4 * lvm.GiB
	noteEvery = 30 * time.Second
)

// maxWrong is how many chunks may differ from the source's before everything is copied again.
const maxWrong = 256

// receiving is the engine's part for a transfer.
type receiving interface {
	// MoveDevice, NoteCopied, RoundReceived and Received are host.Host's.
	MoveDevice(ctx context.Context, id lvm.ID, uuid, move string) (string, error)
	NoteCopied(ctx context.Context, id lvm.ID, uuid, move string, copied lvm.Bytes) error
	RoundReceived(ctx context.Context, id lvm.ID, uuid, move string) (lvm.Volume, error)
	Received(ctx context.Context, id lvm.ID, uuid, move string) (lvm.Volume, error)
}

// transfer is the copy of one volume to this node, or of one of its rounds: of everything, or of what changed since the round that this node has. Each attempt continues where the one before stopped, and a restarted driver where the tags say.
// Every chunk is compared with the checksum of what the source read, before it is written, and all frames with the source's hash of all. A chunk
// counts when it is flushed. What only the tags vouch for is read back at the end, and compared with the source again.
type transfer struct {
	engine receiving
	volume lvm.Volume
	limit  *limiter
	round  bool
	since  string // the round that this node has; "": everything is copied
	unit   unit

	first int64        // the first chunk that this process copied; those before count by the tags
	next  atomic.Int64 // the first chunk that is not flushed
	ahead atomic.Int64 // the first chunk that is not written: only for those who watch
	total int64        // the source's chunks
	size  lvm.Bytes    // the source's device

	changed atomic.Int64 // with since: how much the source says that changed, in bytes

	noted     int64 // as next, in the tags
	notedWhen time.Time
}

func newTransfer(engine receiving, v lvm.Volume, offer Offer, limit *limiter) *transfer {
	t := &transfer{engine: engine, volume: v, limit: limit, round: offer.Round, unit: chunkSize, size: offer.deviceSize(), notedWhen: time.Now()}
	if offer.Since != "" && v.Base == offer.Since {
		t.since, t.unit = offer.Since, deltaSize
	}
	t.total = t.unit.chunksOf(t.size)
	t.first = min(int64(v.Copied/lvm.Bytes(t.unit)), t.total)
	t.noted = t.first
	t.next.Store(t.first)
	return t
}

// done is up to where it is copied, verified and flushed.
func (t *transfer) done() lvm.Bytes { return min(t.unit.offset(t.next.Load()), t.size) }

// all is how much there is to copy.
func (t *transfer) all() lvm.Bytes {
	if t.since != "" {
		return lvm.Bytes(t.changed.Load())
	}
	return t.size
}

// copied is how much of all is verified and written; of changes it is an estimate. What is not flushed may be copied once more.
func (t *transfer) copied() lvm.Bytes {
	written := max(t.next.Load(), t.ahead.Load())
	if t.since != "" && written < t.total {
		return lvm.Bytes(float64(t.all()) * float64(written) / float64(t.total))
	}
	return min(t.unit.offset(written), t.all())
}

// run copies the rest, verifies what an earlier process copied, and tags the volume as received, or as having the round.
func (t *transfer) run(ctx context.Context, c *client) (lvm.Volume, error) {
	file, size, err := openVolume(func() (string, error) {
		return t.engine.MoveDevice(ctx, t.volume.ID, t.volume.UUID, t.volume.Move)
	}, writeAlone)
	if err != nil {
		return lvm.Volume{}, err
	}
	defer func() { _ = file.Close() }()
	if size < t.size {
		return lvm.Volume{}, lvm.Errorf(lvm.KindInternal, "volume %s has %d bytes, and its source has %d", t.volume.ID, size, t.size)
	}
	w := newWriter(t, file)
	defer w.close()
	if err := t.copyRest(ctx, c, w); err != nil {
		return lvm.Volume{}, err
	}
	if err := t.verifyFormer(ctx, c, w); err != nil {
		return lvm.Volume{}, err
	}
	if !t.round {
		if err := w.complete(ctx, size, c.offer); err != nil {
			return lvm.Volume{}, err
		}
	}
	if err := file.Sync(); err != nil {
		return lvm.Volume{}, fmt.Errorf("cannot flush volume %s: %w", t.volume.ID, err)
	}
	if t.round {
		return t.engine.RoundReceived(ctx, t.volume.ID, t.volume.UUID, t.volume.Move)
	}
	return t.engine.Received(ctx, t.volume.ID, t.volume.UUID, t.volume.Move)
}

// complete makes what the source does not have that of a volume on this node.
func (w *writer) complete(ctx context.Context, size lvm.Bytes, offer Offer) error {
	if err := w.zeroTail(ctx, size); err != nil {
		return err
	}
	return ownFormatMarks(w.file, w.t.volume, offer, w.t.size)
}

// copyRest copies from the first chunk that is not verified. Receiving and writing go on side by side.
func (t *transfer) copyRest(ctx context.Context, c *client, w *writer) error {
	from := t.next.Load()
	if from == t.total {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	written := make(chan error, 1)
	arrived := make(chan arrival, readAheadTarget-3)
	go func() { written <- w.writeAll(ctx, arrived) }()
	err := c.get(ctx, span{from, t.total}, false, w.take, func(i int64, f frame, buffer []byte) error {
		if err := t.limit.wait(ctx, len(f.data)); err != nil {
			return err
		}
		select {
		case arrived <- arrival{i, f, buffer}:
			return nil
		case err := <-written:
			written <- err
			return errStopped
		}
	})
	if err != nil && !errors.Is(err, errStopped) {
		cancel() // what arrived is not written: the source vouches for none of it
	}
	close(arrived)
	if failed := <-written; failed != nil && (err == nil || errors.Is(err, errStopped)) {
		err = failed
	}
	return err
}

// errStopped: the writer failed, and has the cause.
var errStopped = errors.New("the copy stopped")

// flushed records how far the copy is.
func (t *transfer) flushed(ctx context.Context, next int64) error {
	t.next.Store(next)
	if next == t.total || t.unit.offset(next-t.noted) < noteSize && time.Since(t.notedWhen) < noteEvery {
		return nil
	}
	if err := t.engine.NoteCopied(ctx, t.volume.ID, t.volume.UUID, t.volume.Move, t.done()); err != nil {
		if lvm.KindOf(err) == lvm.KindBusy {
			return nil // another request is under way, so the next segment is noted
		}
		return err
	}
	t.noted, t.notedWhen = next, time.Now()
	return nil
}

// verifyFormer compares what an earlier process copied with the source's hashes, and copies again what differs.
func (t *transfer) verifyFormer(ctx context.Context, c *client, w *writer) error {
	for range 2 {
		if t.first == 0 {
			return nil
		}
		var wrong []int64
		err := c.get(ctx, span{0, t.first}, true, w.mine, func(i int64, f frame, buffer []byte) error {
			if f.kind == frameSkip {
				return nil
			}
			b := buffer[:t.unit.lengthOf(t.size, i)]
			if err := t.limit.wait(ctx, len(b)); err != nil {
				return err
			}
			if err := readAt(w.file, b, t.unit.offset(i)); err != nil {
				return err
			}
			if !f.isOf(b) {
				wrong = append(wrong, i)
			}
			if len(wrong) > maxWrong {
				return errTooMany
			}
			return nil
		})
		switch {
		case errors.Is(err, errTooMany):
			t.first = 0 // everything again
			t.next.Store(0)
			t.ahead.Store(0)
			return t.copyRest(ctx, c, w)
		case err != nil:
			return err
		case len(wrong) == 0:
			t.first = 0
			return nil
		}
		for _, i := range wrong {
			err := c.get(ctx, span{i, i + 1}, false, w.mine, func(i int64, f frame, _ []byte) error { return w.writeOne(i, f) })
			if err != nil {
				return err
			}
		}
		if err := w.file.Sync(); err != nil {
			return fmt.Errorf("cannot flush volume %s: %w", t.volume.ID, err)
		}
	}
	return lvm.Errorf(lvm.KindInternal, "volume %s reads back other data than was written to it", t.volume.ID)
}

var errTooMany = errors.New("too much differs")

// arrival is a chunk that the source sent.
type arrival struct {
	chunk  int64
	frame  frame
	buffer []byte
}

// writer writes chunks, flushes them, and reads them back.
type writer struct {
	t    *transfer
	file *os.File
	all  [][]byte
	free chan []byte // for chunks that arrive
	own  []byte      // of writeOne and the callers' goroutine
}

// readAheadTarget is how many chunks are in memory between the network and the disk.
const readAheadTarget = 8

func newWriter(t *transfer, file *os.File) *writer {
	w := &writer{t: t, file: file, free: make(chan []byte, readAheadTarget), own: newBuffer()}
	w.all = [][]byte{w.own}
	for range readAheadTarget {
		b := newBuffer()
		w.all = append(w.all, b)
		w.free <- b
	}
	return w
}

func (w *writer) take() []byte { return <-w.free }
func (w *writer) mine() []byte { return w.own }

// close frees the memory. No goroutine of the writer runs any more.
func (w *writer) close() {
	for _, b := range w.all {
		freeBuffer(b)
	}
}

// writeAll writes what arrives until there is no more. While it writes a segment, the one before is flushed.
func (w *writer) writeAll(ctx context.Context, arrived <-chan arrival) error {
	yieldToPods()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	written := make(chan int64) // the first chunk that is not
	var flusher sync.WaitGroup
	flusher.Go(func() {
		for next := range written {
			if context.Cause(ctx) == nil {
				if err := w.flush(ctx, next); err != nil {
					cancel(err)
				}
			}
		}
	})
	next, unflushed := w.t.next.Load(), lvm.Bytes(0)
	for a := range arrived {
		err := context.Cause(ctx)
		if err == nil {
			err = w.writeOne(a.chunk, a.frame)
		}
		w.free <- a.buffer
		if err != nil {
			cancel(err)
			break
		}
		next = a.chunk + 1
		w.t.ahead.Store(max(w.t.ahead.Load(), next))
		if a.frame.kind != frameSkip {
			unflushed += lvm.Bytes(w.t.unit)
		}
		if unflushed >= segment {
			written <- next
			unflushed = 0
		}
	}
	written <- next
	close(written)
	flusher.Wait()
	return context.Cause(ctx)
}

// flush makes what was written durable, and records it.
func (w *writer) flush(ctx context.Context, next int64) error {
	if err := w.file.Sync(); err != nil {
		return fmt.Errorf("cannot flush volume %s: %w", w.t.volume.ID, err)
	}
	return w.t.flushed(ctx, next)
}

// writeOne writes a chunk. It does not write zeroes over zeroes: a write would allocate blocks of a thin pool.
func (w *writer) writeOne(chunk int64, f frame) error {
	at := w.t.unit.offset(chunk)
	switch f.kind {
	case frameSkip:
		return nil
	case frameData:
		if !f.isOf(f.data) {
			return lvm.Errorf(lvm.KindInternal, "what arrived of volume %s at %d is not what its source read there", w.t.volume.ID, at)
		}
		return writeAt(w.file, f.data, at)
	}
	return w.zero(at, w.t.unit.lengthOf(w.t.size, chunk))
}

// zero makes a part zero. A thin volume gives its blocks back where it can.
func (w *writer) zero(at lvm.Bytes, n int) error {
	b := w.own[:n]
	if err := readAt(w.file, b, at); err != nil || isZero(b) {
		return err
	}
	if w.t.volume.Class.Layout == lvm.LayoutThin {
		discard(w.file, at, lvm.Bytes(n))
		if err := readAt(w.file, b, at); err != nil || isZero(b) {
			return err
		}
	}
	clear(b)
	return writeAt(w.file, b, at)
}

// zeroTail zeroes what the target's device has beyond the source's: a larger extent, or what another volume left there.
func (w *writer) zeroTail(ctx context.Context, size lvm.Bytes) error {
	for at := w.t.size; at < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		next := min(size, (at/lvm.Bytes(chunkSize)+1)*lvm.Bytes(chunkSize))
		if err := w.zero(at, int(next-at)); err != nil {
			return err
		}
		at = next
	}
	return nil
}

// ownFormatMarks makes the format marks of a volume that was never mounted those of the copy: a mark names its logical volume. An interrupted mkfs leaves
// some of them.
func ownFormatMarks(file *os.File, v lvm.Volume, offer Offer, size lvm.Bytes) error {
	if offer.FormatMark == 0 {
		return nil
	}
	buffer := newBuffer()
	defer freeBuffer(buffer)
	b := buffer[:lvm.FormatMarkSize]
	for _, at := range lvm.FormatMarkPlaces(offer.FormatMark, size) {
		if _, err := file.ReadAt(b, at); err != nil {
			return fmt.Errorf("cannot read the format mark of volume %s: %w", v.ID, err)
		}
		if !bytes.Equal(b, lvm.FormatMark(offer.UUID)) {
			continue
		}
		copy(b, lvm.FormatMark(v.UUID))
		if _, err := file.WriteAt(b, at); err != nil {
			return fmt.Errorf("cannot write the format mark of volume %s: %w", v.ID, err)
		}
	}
	return nil
}
