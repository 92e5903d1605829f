package move

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"math"

	"github.com/nodelvm/nodelvm/lvm"
)

// The body of an answer is one frame for each requested chunk, in order, and one that ends it:
//
//	'D', CRC-32C of the chunk (4 bytes), the chunk
//	'Z': the chunk is zero
//	'H', SHA-256 of the chunk: the request asked for hashes alone
//	'S', how many: so many chunks did not change since the round that the request names (8 bytes)
//	'E', SHA-256 of all frames before, without the chunks in them
//
// In numbers the highest byte is first. Only a body with 'E' is complete. A source sends it after it has made sure that the volume was still held.
//
// TLS protects what is sent, from the source's process to the target's. The CRC finds what a fault of the memory of either changed. Two disks are compared by
// SHA-256: a tenant can write chunks of equal CRC.
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

// zeroes is no slice: on the heap it would make the heap of each driver grow by twice its size.
var zeroes [chunkSize]byte

func isZero(b []byte) bool { return bytes.Equal(b, zeroes[:len(b)]) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is a frame of this kind without the chunk in it.
func header(kind byte, chunk []byte) []byte {
	h := []byte{kind}
	switch kind {
	case frameData:
		h = binary.BigEndian.AppendUint32(h, crc32.Checksum(chunk, castagnoli))
	case frameHash:
		sum := sha256.Sum256(chunk)
		h = append(h, sum[:]...)
	}
	return h
}

// headerSize is the length of a header.
var headerSize = map[byte]int{frameData: 1 + crc32.Size, frameZero: 1, frameHash: 1 + sha256.Size}

// frame is one decoded frame.
type frame struct {
	kind   byte
	header []byte
	data   []byte // 'D': a part of the buffer of next
	skip   int64  // 'S': how many chunks
}

// isOf reports whether the frame is that of a chunk.
func (f frame) isOf(chunk []byte) bool { return bytes.Equal(f.header, header(f.kind, chunk)) }

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
	switch {
	case kind == frameSkip && f.delta:
		return f.skipped()
	case f.hashes && kind == frameHash, !f.hashes && (kind == frameData || kind == frameZero):
	default:
		return frame{}, fmt.Errorf("the source sent a frame of an unexpected kind, %q", kind)
	}
	r := frame{kind: kind, header: make([]byte, headerSize[kind])}
	r.header[0] = kind
	if kind == frameData {
		r.data = buffer[:n]
	}
	for _, part := range [][]byte{r.header[1:], r.data} {
		if _, err := io.ReadFull(f.body, part); err != nil {
			return frame{}, cutShort(err)
		}
	}
	f.digest.Write(r.header)
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
		err = errors.New("the source's checksum of the whole is not that of the frames that it sent")
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
