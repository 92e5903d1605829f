package move

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"

	"github.com/nodelvm/nodelvm/lvm"
)

// The body of an answer is one frame for each requested chunk, in order, and one that ends it:
//
//	'D', SHA-256 of the chunk, the chunk
//	'Z': the chunk is zero
//	'H', SHA-256 of the chunk: the request asked for hashes alone
//	'E', SHA-256 of the hashes of all requested chunks
//
// Only a body with 'E' is complete. A source sends it after it has made sure that the volume was still held.
const (
	frameData = 'D'
	frameZero = 'Z'
	frameHash = 'H'
	frameEnd  = 'E'
)

// chunkSize is the unit of a copy. The last chunk of a volume may be shorter.
const chunkSize = 1 * lvm.MiB

// span is a range of chunks of a volume.
type span struct{ from, to int64 }

// chunksOf returns the number of a device's chunks.
func chunksOf(size lvm.Bytes) int64 { return int64((size + chunkSize - 1) / chunkSize) }

// lengthOf returns the length of a chunk of a device.
func lengthOf(size lvm.Bytes, chunk int64) int {
	return int(min(chunkSize, size-lvm.Bytes(chunk)*chunkSize))
}

var zeroes = make([]byte, chunkSize)

func isZero(b []byte) bool { return bytes.Equal(b, zeroes[:len(b)]) }

// zeroHashes are the hashes of chunks of zeroes, by length.
var zeroHashes sync.Map

func hashOfZeroes(n int) [sha256.Size]byte {
	if sum, known := zeroHashes.Load(n); known {
		return sum.([sha256.Size]byte)
	}
	sum := sha256.Sum256(zeroes[:n])
	zeroHashes.Store(n, sum)
	return sum
}

// frame is one decoded frame.
type frame struct {
	kind byte
	hash [sha256.Size]byte // of the chunk, whatever the kind
	data []byte            // 'D': a part of the buffer of next
}

// frames decodes a body of which the request says how many chunks it has. It reads no byte more than they need.
type frames struct {
	body   io.Reader
	digest hash.Hash
	hashes bool
}

func newFrames(body io.Reader, hashes bool) *frames {
	return &frames{body: body, digest: sha256.New(), hashes: hashes}
}

// next reads the frame of the next chunk, which has n bytes, into a buffer of at least that size.
func (f *frames) next(buffer []byte, n int) (frame, error) {
	kind, err := f.kind()
	if err != nil {
		return frame{}, err
	}
	r := frame{kind: kind}
	switch {
	case kind == frameZero && !f.hashes:
		r.hash = hashOfZeroes(n)
	case kind == frameHash && f.hashes, kind == frameData && !f.hashes:
		if _, err := io.ReadFull(f.body, r.hash[:]); err != nil {
			return frame{}, cutShort(err)
		}
	default:
		return frame{}, fmt.Errorf("the source sent a frame of an unexpected kind, %q", kind)
	}
	if kind == frameData {
		r.data = buffer[:n]
		if _, err := io.ReadFull(f.body, r.data); err != nil {
			return frame{}, cutShort(err)
		}
	}
	f.digest.Write(r.hash[:])
	return r, nil
}

// end reads the last frame.
func (f *frames) end() error {
	var sum [sha256.Size]byte
	kind, err := f.kind()
	if err == nil && kind != frameEnd {
		err = fmt.Errorf("the source sent a frame of the kind %q after the last chunk", kind)
	}
	if err == nil {
		if _, err = io.ReadFull(f.body, sum[:]); err != nil {
			err = cutShort(err)
		}
	}
	if err == nil && !bytes.Equal(f.digest.Sum(nil), sum[:]) {
		err = errors.New("the source's checksum of the whole is not that of the chunks that it sent")
	}
	return err
}

func (f *frames) kind() (byte, error) {
	var kind [1]byte
	if _, err := io.ReadFull(f.body, kind[:]); err != nil {
		return 0, cutShort(err)
	}
	return kind[0], nil
}

func cutShort(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the source ended the transfer before its end")
	}
	return fmt.Errorf("cannot read from the source: %w", err)
}
