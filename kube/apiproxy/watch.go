package apiproxy

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// watch passes on the events that concern the node, until the API server or the client ends the watch.
func (f *filter) watch(w http.ResponseWriter, body io.Reader) error {
	control, in := http.NewResponseController(w), bufio.NewReader(body)
	if err := control.Flush(); err != nil { // the client waits for the header
		return err
	}
	var buffer []byte
	for {
		frame, err := readFrame(in, buffer)
		if errors.Is(err, io.EOF) {
			return nil // each watch ends after some minutes
		}
		if err != nil {
			return err
		}
		buffer = frame
		if frame, err = f.event(frame); err != nil {
			return err
		}
		if frame != nil {
			if err := writeFrame(w, frame); err != nil {
				return err
			}
		}
		if in.Buffered() == 0 {
			if err := control.Flush(); err != nil {
				return err
			}
		}
	}
}

// event returns the frame that replaces one; nil: none does.
func (f *filter) event(frame []byte) ([]byte, error) {
	var e metav1.WatchEvent
	if err := e.Unmarshal(frame); err != nil {
		return nil, fmt.Errorf("cannot decode an event of a watch: %w", err)
	}
	kind := watch.EventType(e.Type)
	if kind != watch.Added && kind != watch.Modified && kind != watch.Deleted {
		return frame, nil // bookmarks and errors
	}
	o, err := f.decode(e.Object.Raw)
	if err != nil {
		return nil, err
	}
	f.note(o, kind == watch.Deleted)
	switch {
	case kind == watch.Deleted: // harmless if the client does not have the object
		return frame, nil
	case f.concerns(o, len(e.Object.Raw)):
		return frame, nil
	case kind == watch.Added:
		return nil, nil
	}
	return f.gone(o) // it may have concerned the node before
}

// gone encodes the deletion event of an object.
func (f *filter) gone(o object) ([]byte, error) {
	var rest object = &corev1.PersistentVolumeClaim{ObjectMeta: identity(o)}
	if _, ok := o.(*corev1.PersistentVolume); ok {
		rest = &corev1.PersistentVolume{ObjectMeta: identity(o)}
	}
	message, err := rest.Marshal()
	if err != nil {
		return nil, err
	}
	raw, err := seal(f.kind.name, message)
	if err != nil {
		return nil, err
	}
	return encodeEvent(watch.Deleted, raw)
}

// identity is as little of an object as the client needs to find it in its cache.
func identity(o metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion()}
}

func encodeEvent(kind watch.EventType, raw []byte) ([]byte, error) {
	e := metav1.WatchEvent{Type: string(kind)}
	e.Object.Raw = raw
	return e.Marshal()
}

// lengthBytes precede each frame of a watch.
const lengthBytes = 4

// readFrame reads one frame into the buffer, or into a larger one.
func readFrame(in io.Reader, buffer []byte) ([]byte, error) {
	var length [lengthBytes]byte
	if _, err := io.ReadFull(in, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > maxAnswer {
		return nil, fmt.Errorf("the API server announces an event of %d bytes; at most %d are accepted", n, maxAnswer)
	}
	if uint32(cap(buffer)) < n { //nolint:gosec // below maxAnswer
		buffer = make([]byte, n)
	}
	frame := buffer[:n]
	if _, err := io.ReadFull(in, frame); err != nil {
		return nil, fmt.Errorf("an event of a watch is incomplete: %w", err)
	}
	return frame, nil
}

func writeFrame(w io.Writer, frame []byte) error {
	var length [lengthBytes]byte
	binary.BigEndian.PutUint32(length[:], uint32(len(frame))) //nolint:gosec // below maxAnswer
	if _, err := w.Write(length[:]); err != nil {
		return err
	}
	_, err := w.Write(frame)
	return err
}
