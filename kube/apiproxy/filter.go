package apiproxy

import (
	"bytes"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	name     string
	empty    func() object
	concerns func(o object, node string) bool
}

func kindOf(path string) kind {
	if path == volumesPath {
		return kind{"PersistentVolume", func() object { return &corev1.PersistentVolume{} }, func(o object, node string) bool {
			pv, ok := o.(*corev1.PersistentVolume)
			return ok && volumeConcerns(pv, node)
		}}
	}
	return kind{"PersistentVolumeClaim", func() object { return &corev1.PersistentVolumeClaim{} }, func(o object, node string) bool {
		claim, ok := o.(*corev1.PersistentVolumeClaim)
		return ok && claimConcerns(claim, node)
	}}
}

// filter passes on the objects that concern the node.
type filter struct {
	kind    kind
	node    string
	source  func(namespace, name string) ([]byte, error) // reads a claim; nil: there is none
	sources *sources
}

// note records whether the object is a clone that waits on this node, and returns the name of its source; "": it is none.
func (f *filter) note(o object, deleted bool) (source string) {
	claim, ok := o.(*corev1.PersistentVolumeClaim)
	if !ok {
		return ""
	}
	if !deleted {
		source = cloneSource(claim, f.node)
	}
	if source == "" {
		f.sources.set(keyOf(o), "")
	} else {
		f.sources.set(keyOf(o), claim.Namespace+"/"+source)
	}
	return source
}

func keyOf(o object) string { return o.GetNamespace() + "/" + o.GetName() }

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
