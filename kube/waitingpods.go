package kube

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/pending"
)

// waitingPod holds the kept fields of a pod that uses claims and for which the scheduler may be choosing a node.
type waitingPod struct {
	namespace, name string
	uid             types.UID
	created         metav1.Time
	claims          []string // claims in use, including those of its generic ephemeral volumes
	ephemeral       []string // of these, the claims of its generic ephemeral volumes
}

// Tenants write pods, which the API server stores with up to 1.5 MiB: thousands of claims, or names that no claim can have. What is beyond these
// limits is left out, and the claims of such pods are then placed one by one.
const (
	podClaimsMost = 256     // claims of a pod
	namesMost     = 4 << 20 // bytes of the names that one list keeps
)

// waitingPodOf returns the kept fields of a pod; false: the pod does not matter.
func waitingPodOf(pod *corev1.Pod) (waitingPod, bool) {
	p := waitingPod{namespace: pod.Namespace, name: pod.Name, uid: pod.UID, created: pod.CreationTimestamp}
	for _, v := range pod.Spec.Volumes {
		name := ""
		switch {
		case v.PersistentVolumeClaim != nil:
			name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			name = pending.ClaimName(pod, v)
			p.ephemeral = append(p.ephemeral, name)
		}
		if name != "" && !slices.Contains(p.claims, name) {
			p.claims = append(p.claims, name)
		}
		if len(p.claims) == podClaimsMost {
			break
		}
	}
	return p, isWaiting(pod) && len(p.claims) > 0
}

// size returns how many bytes the names of a pod take, about.
func (pod *waitingPod) size() int {
	const header = 16 // of a string
	size := len(pod.namespace) + len(pod.name) + len(pod.uid)
	for _, claim := range pod.claims {
		size += len(claim) + header
	}
	return size
}

// fieldTree maps the wanted fields of a protobuf message, by number, to the wanted fields within each; nil: all of it.
type fieldTree map[protowire.Number]fieldTree

// waitingPodFields are the fields of a Pod that waitingPodOf reads (k8s.io/api/core/v1/generated.proto).
var waitingPodFields = fieldTree{
	1: {1: nil, 3: nil, 5: nil, 8: nil, 9: nil}, // metadata: name, namespace, uid, creationTimestamp, deletionTimestamp
	2: { // spec
		1:  {1: nil, 2: {10: nil, 29: {}}}, // volumes: name, persistentVolumeClaim, and the presence of ephemeral
		38: nil,                            // schedulingGates
	},
	3: {1: nil}, // status: phase
}

// pick appends the wanted fields of a protobuf message to out.
func (wanted fieldTree) pick(out, message []byte) ([]byte, error) {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return nil, protowire.ParseError(tag)
		}
		value := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if value < 0 {
			return nil, protowire.ParseError(value)
		}
		field := message[:tag+value]
		message = message[tag+value:]
		within, is := wanted[number]
		switch {
		case !is:
		case within == nil || kind != protowire.BytesType:
			out = append(out, field...)
		default:
			content, _ := protowire.ConsumeBytes(field[tag:])
			picked, err := within.pick(nil, content)
			if err != nil {
				return nil, err
			}
			out = protowire.AppendTag(out, number, kind)
			out = protowire.AppendBytes(out, picked)
		}
	}
	return out, nil
}

// readPods reads a list of pods as the API server sends it, and passes on each pod with the wanted fields.
// The pod is valid until the next one. A namespace may contain thousands of pods of many kilobytes each: readPods holds
// only one in memory. It leaves out a pod whose wanted fields are larger than api.MaxObject.
func readPods(body io.Reader, wanted fieldTree, each func(*corev1.Pod)) error {
	r := &wireReader{r: bufio.NewReaderSize(body, 64<<10), wanted: wanted}
	if magic, err := r.r.Peek(len(protobufMagic)); err == nil && string(magic) == protobufMagic {
		return r.list(each)
	}
	var list struct {
		Items []corev1.Pod `json:"items"`
	}
	if err := json.NewDecoder(r.r).Decode(&list); err != nil {
		return fmt.Errorf("the list of pods is neither protobuf nor JSON: %w", err)
	}
	for i := range list.Items {
		each(&list.Items[i])
	}
	return nil
}

// protobufMagic begins an object in Kubernetes' protobuf encoding: a runtime.Unknown message that contains the object's
// message.
const protobufMagic = "k8s\x00"

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
	wanted fieldTree
	read   uint64       // bytes read so far
	text   bytes.Buffer // the current pod's message
	kept   []byte       // the wanted fields of it
	pod    corev1.Pod   // those fields, decoded
}

func (r *wireReader) list(each func(*corev1.Pod)) error {
	if err := r.skip(uint64(len(protobufMagic))); err != nil {
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
