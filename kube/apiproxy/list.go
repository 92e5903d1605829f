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

// list returns the list of the items that concern the node, in parts.
func (f *filter) list(body io.Reader) ([][]byte, error) {
	var kept []byte
	err := readList(body, func(field protowire.Number, message []byte) error {
		if field == fieldItem {
			if keep, err := f.keeps(message); !keep || err != nil {
				return err
			}
		}
		kept = appendField(kept, field, message)
		return nil
	})
	if err != nil {
		return nil, err
	}
	head, err := seal(f.kind.name+"List", nil)
	head = protowire.AppendVarint(protowire.AppendTag(head, fieldRaw, protowire.BytesType), uint64(len(kept)))
	return [][]byte{head, kept}, err
}

// keeps reports whether the client gets an item.
func (f *filter) keeps(message []byte) (bool, error) {
	o := f.kind.empty()
	if err := o.Unmarshal(message); err != nil {
		return false, fmt.Errorf("cannot decode a %s: %w", f.kind.name, err)
	}
	f.note(o, false)
	return f.concerns(o, len(message)), nil
}

// readList reads a list to its end, and calls visit with each of its fields.
func readList(body io.Reader, visit func(field protowire.Number, message []byte) error) error {
	in := bufio.NewReader(body)
	start := make([]byte, len(magic))
	if _, err := io.ReadFull(in, start); err != nil || !bytes.Equal(start, magic) {
		return errors.Join(errors.New("the API server's list is not in Kubernetes' protobuf encoding"), err)
	}
	for found := false; ; {
		field, length, err := nextField(in)
		if errors.Is(err, io.EOF) && found {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the API server's list is incomplete: %w", err)
		}
		inner := &io.LimitedReader{R: in, N: length}
		if field == fieldRaw {
			found = true
			err = readFields(bufio.NewReader(inner), visit)
		} else {
			_, err = io.Copy(io.Discard, inner)
		}
		if err != nil {
			return err
		}
		if inner.N > 0 {
			return fmt.Errorf("the API server's list lacks %d bytes", inner.N)
		}
	}
}

// readFields calls visit with each field of the list in an envelope.
func readFields(in *bufio.Reader, visit func(field protowire.Number, message []byte) error) error {
	for {
		field, length, err := nextField(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if length > maxAnswer {
			return fmt.Errorf("the API server's list has an item of %d bytes; at most %d are accepted", length, maxAnswer)
		}
		message := make([]byte, length)
		if _, err := io.ReadFull(in, message); err != nil {
			return fmt.Errorf("the API server's list is incomplete: %w", err)
		}
		if err := visit(field, message); err != nil {
			return err
		}
	}
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
