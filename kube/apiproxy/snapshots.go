package apiproxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nodelvm/nodelvm/api"
)

// snapshotFilter passes on the VolumeSnapshots that csi-provisioner looks for in its cache. They are custom resources: the API server
// has no protobuf encoding of them.
type snapshotFilter struct{ log *slog.Logger }

// list returns the list with the kept items. It reads one item at a time.
func (f snapshotFilter) list(body io.Reader) ([][]byte, error) {
	in, kept := json.NewDecoder(body), &bytes.Buffer{}
	if err := f.fields(in, kept); err != nil {
		return nil, fmt.Errorf("the API server's list is incomplete: %w", noEOF(err))
	}
	return [][]byte{kept.Bytes()}, nil
}

// fields copies the fields of a list, with the kept items.
func (f snapshotFilter) fields(in *json.Decoder, kept *bytes.Buffer) error {
	if err := delimiter(in, '{'); err != nil {
		return err
	}
	kept.WriteByte('{')
	for separator := ""; in.More(); separator = "," {
		name, err := in.Token()
		if err != nil {
			return err
		}
		quoted, err := json.Marshal(name)
		if err != nil {
			return err
		}
		kept.WriteString(separator)
		kept.Write(quoted)
		kept.WriteByte(':')
		if name == "items" {
			err = f.items(in, kept)
		} else {
			err = copyValue(in, kept)
		}
		if err != nil {
			return err
		}
	}
	kept.WriteByte('}')
	return delimiter(in, '}')
}

func (f snapshotFilter) items(in *json.Decoder, kept *bytes.Buffer) error {
	if err := delimiter(in, '['); err != nil {
		return err
	}
	kept.WriteByte('[')
	for separator := ""; in.More(); {
		var item json.RawMessage
		if err := in.Decode(&item); err != nil {
			return err
		}
		snapshot, err := decodeSnapshot(item)
		if err != nil {
			return err
		}
		if f.concerns(snapshot, len(item)) {
			kept.WriteString(separator)
			kept.Write(item)
			separator = ","
		}
	}
	kept.WriteByte(']')
	return delimiter(in, ']')
}

// watch passes on the events until the API server or the client ends the watch.
func (f snapshotFilter) watch(w http.ResponseWriter, body io.Reader) error {
	control, in := http.NewResponseController(w), json.NewDecoder(body)
	for {
		if err := control.Flush(); err != nil { // at first the header, which the client waits for
			return err
		}
		frame, err := f.nextFrame(in)
		if errors.Is(err, io.EOF) {
			return nil // each watch ends after some minutes
		}
		if err != nil {
			return err
		}
		if _, err := w.Write(append(frame, '\n')); err != nil {
			return err
		}
	}
}

// nextFrame reads events up to one that the client gets.
func (f snapshotFilter) nextFrame(in *json.Decoder) ([]byte, error) {
	for {
		var frame json.RawMessage
		if err := in.Decode(&frame); err != nil {
			return nil, err // io.EOF: the end
		}
		if frame, err := f.event(frame); err != nil || frame != nil {
			return frame, err
		}
	}
}

// event returns the frame that replaces one; nil: none does.
func (f snapshotFilter) event(frame []byte) ([]byte, error) {
	var e metav1.WatchEvent
	if err := json.Unmarshal(frame, &e); err != nil {
		return nil, fmt.Errorf("cannot decode an event of a watch: %w", err)
	}
	switch watch.EventType(e.Type) {
	case watch.Added, watch.Modified:
	default: // bookmarks and errors; DELETED of an object that the client does not have is harmless
		return frame, nil
	}
	snapshot, err := decodeSnapshot(e.Object.Raw)
	switch {
	case err != nil:
		return nil, err
	case f.concerns(snapshot, len(e.Object.Raw)):
		return frame, nil
	case watch.EventType(e.Type) == watch.Added:
		return nil, nil
	}
	// It may have concerned the node before.
	gone := metav1.WatchEvent{Type: string(watch.Deleted)}
	gone.Object.Object = &metav1.PartialObjectMetadata{TypeMeta: snapshot.TypeMeta, ObjectMeta: identity(snapshot)}
	return json.Marshal(gone)
}

// concerns reports whether the client needs a VolumeSnapshot, which the API server encodes in size bytes.
func (f snapshotFilter) concerns(snapshot metav1.Object, size int) bool {
	if !snapshotConcerns(snapshot) {
		return false
	}
	if size > api.MaxObject {
		warnOfSize(f.log, "VolumeSnapshot", snapshot, size)
		return false
	}
	return true
}

func decodeSnapshot(raw []byte) (*metav1.PartialObjectMetadata, error) {
	snapshot := &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(raw, snapshot); err != nil {
		return nil, fmt.Errorf("cannot decode a VolumeSnapshot: %w", err)
	}
	return snapshot, nil
}

// delimiter reads the beginning or the end of an object or array.
func delimiter(in *json.Decoder, want json.Delim) error {
	token, err := in.Token()
	if err == nil && token != want {
		err = fmt.Errorf("%v instead of %v", token, want)
	}
	return err
}

func copyValue(in *json.Decoder, to *bytes.Buffer) error {
	var value json.RawMessage
	if err := in.Decode(&value); err != nil {
		return err
	}
	to.Write(value)
	return nil
}

// noEOF replaces io.EOF, which ends a list that is not complete.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
