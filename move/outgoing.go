package move

import (
	"cmp"
	"context"
	"crypto/sha256"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// outgoing is the body of one answer.
type outgoing struct {
	server     *server
	w          io.Writer
	control    *http.ResponseController
	socket     *socket
	q          query
	changes    *lvm.Changes // nil: everything is sent
	request    Request
	authorized time.Time // last
}

// read is a chunk that was read.
type read struct {
	buffer []byte
	data   []byte // the frame's chunk, if it has one
	header []byte // the frame's
	skip   int64  // so many chunks did not change, and were not read
	err    error
}

// readAhead is how many chunks of one volume are in memory.
const readAhead = 8

func (o *outgoing) sendChunks(ctx context.Context, file *os.File, size lvm.Bytes) error {
	ctx, cancel := context.WithCancel(ctx)
	chunks := make(chan read, readAhead)
	free := make(chan []byte, readAhead)
	var buffers [readAhead][]byte
	for i := range buffers {
		buffers[i] = newBuffer()
		free <- buffers[i]
	}
	var reader sync.WaitGroup
	reader.Go(func() { o.read(ctx, file, size, free, chunks) })
	defer func() {
		cancel()
		close(free) // the reader may wait for one
		reader.Wait()
		for _, b := range buffers {
			freeBuffer(b)
		}
	}()
	digest := sha256.New()
	for at := o.q.span.from; at < o.q.span.to; {
		c, more := <-chunks
		if !more {
			return context.Cause(ctx)
		}
		at += max(1, c.skip)
		if c.err == nil {
			digest.Write(c.header)
			c.err = o.sendChunk(ctx, c)
		}
		free <- c.buffer
		if c.err != nil {
			return c.err
		}
	}
	// The device was not another volume's meanwhile, and nothing else was allowed to write it.
	if _, err := o.server.device(ctx, o.q); err != nil {
		return err
	}
	return o.write([]byte{frameEnd}, digest.Sum(nil))
}

// read reads the chunks and makes their headers, ahead of what is sent.
func (o *outgoing) read(ctx context.Context, file *os.File, size lvm.Bytes, free <-chan []byte, chunks chan<- read) {
	yieldToPods()
	defer close(chunks)
	for i := o.q.span.from; i < o.q.span.to; {
		r := read{buffer: <-free}
		if r.buffer == nil {
			return // closed
		}
		if r.skip = o.unchanged(i); r.skip > 0 {
			r.header = skipFrame(r.skip)
		} else {
			o.readChunk(ctx, file, size, i, &r)
		}
		i += max(1, r.skip)
		failed := r.err != nil
		select {
		case chunks <- r:
		case <-ctx.Done():
			return
		}
		if failed {
			return
		}
	}
}

// unchanged returns how many chunks from this one on did not change.
func (o *outgoing) unchanged(chunk int64) int64 {
	if o.changes == nil {
		return 0
	}
	next, _ := o.changes.Next(chunk)
	return min(next, o.q.span.to) - chunk
}

func (o *outgoing) readChunk(ctx context.Context, file *os.File, size lvm.Bytes, chunk int64, r *read) {
	u := o.q.unit()
	b := r.buffer[:u.lengthOf(size, chunk)]
	if r.err = o.server.limit.wait(ctx, len(b)); r.err == nil {
		r.err = readAt(file, b, u.offset(chunk))
	}
	if r.err != nil {
		return
	}
	kind := byte(frameData)
	switch {
	case o.q.hashes:
		kind = frameHash
	case isZero(b):
		kind = frameZero
	default:
		r.data = b
	}
	r.header = header(kind, b)
}

func (o *outgoing) sendChunk(ctx context.Context, c read) error {
	if time.Since(o.authorized) > reauthorize {
		if err := o.server.authorize(ctx, o.request); err != nil {
			return err
		}
		o.authorized = time.Now()
	}
	return o.write(c.header, c.data)
}

func (o *outgoing) write(parts ...[]byte) (err error) {
	if err := o.control.SetWriteDeadline(time.Now().Add(chunkTime)); err != nil {
		return err
	}
	o.socket.gather()
	defer func() { err = cmp.Or(err, o.socket.flush()) }()
	for _, part := range parts {
		if _, err := o.w.Write(part); err != nil {
			return err
		}
	}
	return nil
}
