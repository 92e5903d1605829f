package apiproxy

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodelvm/nodelvm/api"
)

// magic begins every object in Kubernetes' protobuf encoding.
var magic = []byte("k8s\x00")

// object is a claim or a PersistentVolume.
type object interface {
	metav1.Object
	Marshal() ([]byte, error)
	Unmarshal(data []byte) error
}

// kind describes a resource for a filter.
type kind struct {
	name  string
	empty func() object
	most  int // bytes; larger objects concern no node
}

func kindOf(path string) kind {
	if path == volumesPath {
		return kind{"PersistentVolume", func() object { return &corev1.PersistentVolume{} }, maxAnswer}
	}
	return kind{"PersistentVolumeClaim", func() object { return &corev1.PersistentVolumeClaim{} }, api.MaxObject}
}

// filter passes on the objects that concern the node.
type filter struct {
	kind    kind
	node    string
	volumes *volumes
	log     *slog.Logger
}

// note records where a PersistentVolume is.
func (f *filter) note(o object, deleted bool) {
	if pv, ok := o.(*corev1.PersistentVolume); ok {
		f.volumes.note(pv, !deleted && isHere(pv, f.node))
	}
}

// concerns reports whether the node needs an object, which the API server encodes in size bytes.
func (f *filter) concerns(o object, size int) bool {
	if size > f.kind.most {
		warnOfSize(f.log, f.kind.name, o, size)
		return false
	}
	switch o := o.(type) {
	case *corev1.PersistentVolume:
		return volumeConcerns(o, f.node)
	case *corev1.PersistentVolumeClaim:
		return claimConcerns(o, f.node, f.volumes.has(o.Spec.VolumeName))
	}
	return false
}

func warnOfSize(log *slog.Logger, kind string, o metav1.Object, size int) {
	log.Warn("csi-provisioner does not get an object that is too large", "kind", kind, "namespace", o.GetNamespace(), "name", o.GetName(), "bytes", size, "most", api.MaxObject)
}

// decode decodes an object with its envelope.
func (f *filter) decode(raw []byte) (object, error) {
	message, err := open(raw)
	if err != nil {
		return nil, err
	}
	o := f.kind.empty()
	if err := o.Unmarshal(message); err != nil {
		return nil, fmt.Errorf("cannot decode a %s: %w", f.kind.name, err)
	}
	return o, nil
}

// open returns the message in the envelope of an object.
func open(raw []byte) ([]byte, error) {
	message, ok := bytes.CutPrefix(raw, magic)
	if !ok {
		return nil, errors.New("the API server's answer is not in Kubernetes' protobuf encoding")
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(message); err != nil {
		return nil, fmt.Errorf("cannot decode the API server's answer: %w", err)
	}
	return envelope.Raw, nil
}

// seal puts a message into an envelope.
func seal(kind string, message []byte) ([]byte, error) {
	envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: kind}, Raw: message}
	raw, err := envelope.Marshal()
	return append(bytes.Clone(magic), raw...), err
}
