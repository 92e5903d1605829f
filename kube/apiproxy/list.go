package apiproxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// A list is an envelope (field 2: the list) around the list (field 1: its metadata, field 2: an item). The proxy reads a list item
// by item, and keeps only the items that concern the node: the list of a large cluster is long.
const (
	fieldRaw  = 2
	fieldItem = 2
)

// list returns the list of the items that concern the node, and of the sources of their clones.
func (f *filter) list(body io.Reader) ([]byte, error) {
	in := bufio.NewReader(body)
	start := make([]byte, len(magic))
	if _, err := io.ReadFull(in, start); err != nil || !bytes.Equal(start, magic) {
		return nil, errors.Join(errors.New("the API server's list is not in Kubernetes' protobuf encoding"), err)
	}
	kept, err := f.envelope(in)
	if err != nil {
		return nil, err
	}
	return seal(f.kind.name+"List", kept)
}

// envelope reads an envelope to its end, and returns the part of its list that concerns the node.
func (f *filter) envelope(in *bufio.Reader) (kept []byte, err error) {
	found := false
	for {
		field, length, err := nextField(in)
		if errors.Is(err, io.EOF) && found {
			return kept, nil
		}
		if err != nil {
			return nil, fmt.Errorf("the API server's list is incomplete: %w", err)
		}
		inner := &io.LimitedReader{R: in, N: length}
		if field == fieldRaw {
			found = true
			kept, err = f.items(bufio.NewReader(inner))
		} else {
			_, err = io.Copy(io.Discard, inner)
		}
		if err != nil {
			return nil, err
		}
		if inner.N > 0 {
			return nil, fmt.Errorf("the API server's list lacks %d bytes", inner.N)
		}
	}
}

// items returns the list with the kept items.
func (f *filter) items(in *bufio.Reader) (kept []byte, err error) {
	for {
		field, length, err := nextField(in)
		if errors.Is(err, io.EOF) {
			return kept, nil
		}
		if err != nil {
			return nil, err
		}
		if length > maxObject {
			return nil, fmt.Errorf("the API server's list has an item of %d bytes; at most %d are accepted", length, maxObject)
		}
		message := make([]byte, length)
		if _, err := io.ReadFull(in, message); err != nil {
			return nil, fmt.Errorf("the API server's list is incomplete: %w", err)
		}
		if field != fieldItem {
			kept = appendField(kept, field, message)
			continue
		}
		items, err := f.item(message)
		if err != nil {
			return nil, err
		}
		for _, item := range items {
			kept = appendField(kept, fieldItem, item)
		}
	}
}

// item returns the items that replace one.
func (f *filter) item(message []byte) ([][]byte, error) {
	o := f.kind.empty()
	if err := o.Unmarshal(message); err != nil {
		return nil, fmt.Errorf("cannot decode a %s: %w", f.kind.name, err)
	}
	name := f.note(o, false)
	if !f.kind.concerns(o, f.node) {
		return nil, nil
	}
	if name == "" {
		return [][]byte{message}, nil
	}
	raw, err := f.source(o.GetNamespace(), name)
	if err != nil || raw == nil {
		return [][]byte{message}, err
	}
	source, err := open(raw)
	return [][]byte{source, message}, err
}

// nextField reads the head of a field that has a length, as all fields of lists and envelopes have.
func nextField(in *bufio.Reader) (field protowire.Number, length int64, err error) {
	tag, err := binary.ReadUvarint(in)
	if err != nil {
		return 0, 0, err // io.EOF: the end
	}
	field, wire := protowire.DecodeTag(tag)
	if wire != protowire.BytesType {
		return 0, 0, fmt.Errorf("the API server's list has a field %d of the unexpected wire type %d", field, wire)
	}
	n, err := binary.ReadUvarint(in)
	if err != nil || n > math.MaxInt64 {
		return 0, 0, fmt.Errorf("the API server's list ends in the length of field %d: %w", field, io.ErrUnexpectedEOF)
	}
	return field, int64(n), nil
}

func appendField(b []byte, field protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), message)
}
