package move

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"sync"

	"github.com/nodelvm/nodelvm/lvm"
)

// The body of an answer is one frame for each requested chunk, in order, and one that ends it:
//
//	'D', SHA-256 of the chunk, the chunk
//	'Z': the chunk is zero
//	'H', SHA-256 of the chunk: the request asked for hashes alone
//	'S', how many: so many chunks did not change since the round that the request names (8 bytes, the highest first)
//	'E', SHA-256 of the hashes of all requested chunks, and of the frames 'S' among them
//
// Only a body with 'E' is complete. A source sends it after it has made sure that the volume was still held.
const (
	frameData = 'D'
	frameZero = 'Z'
	frameHash = 'H'
	frameSkip = 'S'
	frameEnd  = 'E'
)

// unit is the size of a copy's chunks. The last chunk of a volume may be shorter.
type unit lvm.Bytes

const (
	chunkSize unit = unit(lvm.MiB)        // of a copy of everything, and the largest
	deltaSize unit = unit(lvm.ChangeUnit) // of a copy of what changed
)

// span is a range of chunks of a volume.
type span struct{ from, to int64 }

// chunksOf returns the number of a device's chunks.
func (u unit) chunksOf(size lvm.Bytes) int64 { return int64((size + lvm.Bytes(u) - 1) / lvm.Bytes(u)) }

// lengthOf returns the length of a chunk of a device.
func (u unit) lengthOf(size lvm.Bytes, chunk int64) int {
	return int(min(lvm.Bytes(u), size-u.offset(chunk)))
}

// offset returns where a chunk begins.
func (u unit) offset(chunk int64) lvm.Bytes { return lvm.Bytes(chunk) * lvm.Bytes(u) }

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
	skip int64             // 'S': how many chunks
}

// frames decodes a body of which the request says how many chunks it has. It reads no byte more than they need.
type frames struct {
	body   io.Reader
	digest hash.Hash
	hashes bool
	delta  bool // chunks may be skipped
}

func newFrames(body io.Reader, hashes, delta bool) *frames {
	return &frames{body: body, digest: sha256.New(), hashes: hashes, delta: delta}
}

// next reads the frame of the next chunk, which has n bytes, into a buffer of at least that size; or how many chunks are skipped.
func (f *frames) next(buffer []byte, n int) (frame, error) {
	kind, err := f.kind()
	if err != nil {
		return frame{}, err
	}
	r := frame{kind: kind}
	switch {
	case kind == frameSkip && f.delta:
		return f.skipped()
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

// skipFrame is the frame for so many skipped chunks.
func skipFrame(n int64) []byte { return binary.BigEndian.AppendUint64([]byte{frameSkip}, uint64(n)) }

func (f *frames) skipped() (frame, error) {
	var count [8]byte
	if _, err := io.ReadFull(f.body, count[:]); err != nil {
		return frame{}, cutShort(err)
	}
	n := binary.BigEndian.Uint64(count[:])
	if n == 0 || n > math.MaxInt32*1024 {
		return frame{}, fmt.Errorf("the source skips %d chunks", n)
	}
	f.digest.Write(skipFrame(int64(n)))
	return frame{kind: frameSkip, skip: int64(n)}, nil
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
