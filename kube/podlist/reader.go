package podlist

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
)

// Read reads a list of pods as the API server sends it, and passes on each pod with the wanted fields.
// The pod is valid until the next one. A namespace may contain thousands of pods of many kilobytes each: Read holds
// only one in memory. It leaves out a pod whose wanted fields are larger than api.MaxObject, and counts these.
func Read(body io.Reader, wanted Fields, each func(*corev1.Pod)) (leftOut int, err error) {
	r := &wireReader{r: bufio.NewReaderSize(body, 64<<10), wanted: wanted}
	if start, err := r.r.Peek(len(magic)); err == nil && string(start) == magic {
		err := r.list(each)
		return r.leftOut, err
	}
	var list struct {
		Items []corev1.Pod `json:"items"`
	}
	if err := json.NewDecoder(r.r).Decode(&list); err != nil {
		return 0, fmt.Errorf("the list of pods is neither protobuf nor JSON: %w", err)
	}
	for i := range list.Items {
		each(&list.Items[i])
	}
	return 0, nil
}

// magic begins an object in Kubernetes' protobuf encoding: a runtime.Unknown message that contains the object's
// message.
const magic = "k8s\x00"

// Field numbers: the object in a runtime.Unknown, and the items of a PodList.
const (
	fieldRaw   protowire.Number = 2
	fieldItems protowire.Number = 2
)

// podBytesMax and listBytesMax far exceed what etcd stores of one object, and what an API server can list.
const (
	podBytesMax  = 32 << 20
	listBytesMax = 1 << 40
)

// wireReader reads protobuf messages from a stream.
type wireReader struct {
	r      *bufio.Reader
	wanted Fields
	read   uint64       // bytes read so far
	text   bytes.Buffer // the current pod's message
	kept   []byte       // the wanted fields of it
	pod    corev1.Pod   // those fields, decoded

	leftOut int
}

func (r *wireReader) list(each func(*corev1.Pod)) error {
	if err := r.skip(uint64(len(magic))); err != nil {
		return err
	}
	for listed := false; ; {
		number, size, err := r.field()
		if errors.Is(err, io.EOF) && listed {
			return nil
		}
		if err == nil && number == fieldRaw {
			listed, err = true, r.items(r.read+size, each)
		} else if err == nil {
			err = r.skip(size)
		}
		if err != nil {
			return fmt.Errorf("the list of pods is truncated or damaged: %w", noEOF(err))
		}
	}
}

// items reads the items of a PodList that ends at end.
func (r *wireReader) items(end uint64, each func(*corev1.Pod)) error {
	for r.read < end {
		number, size, err := r.field()
		switch {
		case err != nil:
			return noEOF(err)
		case size > end || r.read > end-size:
			return errors.New("a field is longer than the list")
		case number != fieldItems:
			err = r.skip(size)
		default:
			err = r.item(size, each)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *wireReader) item(size uint64, each func(*corev1.Pod)) (err error) {
	if size > podBytesMax {
		return fmt.Errorf("a pod of %d bytes", size)
	}
	r.text.Reset()
	if _, err := io.CopyN(&r.text, r.r, int64(size)); err != nil { // the buffer grows with the received bytes, whatever the size says
		return err
	}
	r.read += size
	if r.kept, err = r.wanted.pick(r.kept[:0], r.text.Bytes()); err != nil {
		return err
	}
	if len(r.kept) > api.MaxObject {
		r.leftOut++
		return nil
	}
	r.pod = corev1.Pod{}
	if err := r.pod.Unmarshal(r.kept); err != nil {
		return err
	}
	each(&r.pod)
	return nil
}

// field reads the tag of a field and the size of a message or text; io.EOF: there is no further field. All other fields of
// these messages are numbers, which it skips.
func (r *wireReader) field() (number protowire.Number, size uint64, err error) {
	if _, err := r.r.Peek(1); err != nil {
		return 0, 0, err
	}
	tag, err := r.uvarint()
	if err != nil {
		return 0, 0, noEOF(err)
	}
	number, kind := protowire.DecodeTag(tag)
	switch {
	case number < protowire.MinValidNumber:
		return 0, 0, errors.New("a field without a number")
	case kind == protowire.BytesType:
		if size, err = r.uvarint(); err == nil && size > listBytesMax {
			err = fmt.Errorf("field %d of %d bytes", number, size)
		}
		return number, size, noEOF(err)
	case kind == protowire.VarintType:
		_, err = r.uvarint()
		return 0, 0, noEOF(err)
	}
	return 0, 0, fmt.Errorf("field %d is of kind %d", number, kind)
}

func (r *wireReader) uvarint() (value uint64, err error) {
	for shift := 0; shift < 64; shift += 7 {
		b, err := r.r.ReadByte()
		if err != nil {
			return 0, err
		}
		r.read++
		value |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return value, nil
		}
	}
	return 0, errors.New("a number is longer than 64 bits")
}

func (r *wireReader) skip(size uint64) error {
	n, err := io.CopyN(io.Discard, r.r, int64(min(size, 1<<62)))
	r.read += uint64(n)
	return noEOF(err)
}

// noEOF turns io.EOF into io.ErrUnexpectedEOF, where more must follow.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
