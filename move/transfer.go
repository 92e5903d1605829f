package move

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// segment is how many chunks are written before they are flushed.
const segment = 256

// How often the target's tags say how far a copy is: a restart copies at most so much again.
const (
	noteChunks = 4096
	noteEvery  = 30 * time.Second
)

// receiving is the engine's part for a transfer.
type receiving interface {
	// MoveDevice, NoteCopied and Received are host.Host's.
	MoveDevice(ctx context.Context, id lvm.ID, uuid, move string) (string, error)
	NoteCopied(ctx context.Context, id lvm.ID, uuid, move string, copied lvm.Bytes) error
	Received(ctx context.Context, id lvm.ID, uuid, move string) (lvm.Volume, error)
}

// transfer is the copy of one volume to this node. Each attempt continues where the one before stopped, and a restarted driver where the tags say.
// Every chunk is compared with the hash of what the source read, before it is written, and the whole with the source's hash of all. A chunk
// counts when it is flushed. What only the tags vouch for is read back at the end, and compared with the source again.
type transfer struct {
	engine receiving
	volume lvm.Volume
	limit  *limiter

	first int64        // the first chunk that this process copied; those before count by the tags
	next  atomic.Int64 // the first chunk that is not flushed
	total int64        // the source's chunks
	size  lvm.Bytes    // the source's device

	noted     int64 // as next, in the tags
	notedWhen time.Time
}

func newTransfer(engine receiving, v lvm.Volume, offer Offer, limit *limiter) *transfer {
	t := &transfer{engine: engine, volume: v, limit: limit, size: offer.deviceSize(), notedWhen: time.Now()}
	t.total = chunksOf(t.size)
	t.first = min(int64(v.Copied/chunkSize), t.total)
	t.noted = t.first
	t.next.Store(t.first)
	return t
}

// done is how much is copied, verified and flushed.
func (t *transfer) done() lvm.Bytes { return min(lvm.Bytes(t.next.Load())*chunkSize, t.size) }

// run copies the rest, verifies what an earlier process copied, and tags the volume as received.
func (t *transfer) run(ctx context.Context, c *client) error {
	device, err := t.engine.MoveDevice(ctx, t.volume.ID, t.volume.UUID, t.volume.Move)
	if err != nil {
		return err
	}
	file, size, err := openDevice(device, writeAlone)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if size < t.size {
		return lvm.Errorf(lvm.KindInternal, "volume %s has %d bytes, and its source has %d", t.volume.ID, size, t.size)
	}
	w := newWriter(t, file)
	defer w.close()
	if err := t.copyRest(ctx, c, w); err != nil {
		return err
	}
	if err := t.verifyFormer(ctx, c, w); err != nil {
		return err
	}
	if err := w.zeroTail(ctx, size); err != nil {
		return err
	}
	if err := ownFormatMark(file, t.volume, c.offer); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return fmt.Errorf("cannot flush volume %s: %w", t.volume.ID, err)
	}
	_, err = t.engine.Received(ctx, t.volume.ID, t.volume.UUID, t.volume.Move)
	return err
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
	if next == t.total || next-t.noted < noteChunks && time.Since(t.notedWhen) < noteEvery {
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
		var wrong []int64
		err := c.get(ctx, span{0, t.first}, true, w.mine, func(i int64, f frame, buffer []byte) error {
			b := buffer[:lengthOf(t.size, i)]
			if err := t.limit.wait(ctx, len(b)); err != nil {
				return err
			}
			if err := readChunk(w.file, b, i); err != nil {
				return err
			}
			if sha256.Sum256(b) != f.hash {
				wrong = append(wrong, i)
			}
			if len(wrong) > segment {
				return errTooMany
			}
			return nil
		})
		switch {
		case errors.Is(err, errTooMany):
			t.first = 0 // everything again
			t.next.Store(0)
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

var errTooMany = errors.New("more than a segment differs")

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
	next := w.t.next.Load()
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
		if next = a.chunk + 1; next%segment == 0 {
			written <- next
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
	if f.kind == frameData {
		if sha256.Sum256(f.data) != f.hash {
			return lvm.Errorf(lvm.KindInternal, "what arrived of volume %s at %d is not what its source read there", w.t.volume.ID, chunk*int64(chunkSize))
		}
		return writeChunk(w.file, f.data, chunk)
	}
	return w.zero(chunk, lengthOf(w.t.size, chunk))
}

func (w *writer) zero(chunk int64, n int) error {
	b := w.own[:n]
	if err := readChunk(w.file, b, chunk); err != nil || isZero(b) {
		return err
	}
	clear(b)
	return writeChunk(w.file, b, chunk)
}

// zeroTail zeroes what the target's device has beyond the source's: a larger extent, or what another volume left there.
func (w *writer) zeroTail(ctx context.Context, size lvm.Bytes) error {
	if rest := int(w.t.size % chunkSize); rest != 0 && size > w.t.size {
		b := w.own[:lengthOf(size, w.t.total-1)]
		if err := readChunk(w.file, b, w.t.total-1); err != nil {
			return err
		}
		clear(b[rest:])
		if err := writeChunk(w.file, b, w.t.total-1); err != nil {
			return err
		}
	}
	for i := w.t.total; i < chunksOf(size); i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.zero(i, lengthOf(size, i)); err != nil {
			return err
		}
	}
	return nil
}

// ownFormatMark makes the format mark of a volume that was never mounted that of the copy: a mark names its logical volume.
func ownFormatMark(file *os.File, v lvm.Volume, offer Offer) error {
	if offer.FormatMark == 0 {
		return nil
	}
	buffer := newBuffer()
	defer freeBuffer(buffer)
	b := buffer[:lvm.FormatMarkSize]
	if _, err := file.ReadAt(b, int64(offer.FormatMark)); err != nil {
		return fmt.Errorf("cannot read the format mark of volume %s: %w", v.ID, err)
	}
	if !bytes.Equal(b, lvm.FormatMark(offer.UUID)) {
		return nil
	}
	copy(b, lvm.FormatMark(v.UUID))
	if _, err := file.WriteAt(b, int64(offer.FormatMark)); err != nil {
		return fmt.Errorf("cannot write the format mark of volume %s: %w", v.ID, err)
	}
	return nil
}
