package podlist

import (
	"context"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
)

// Each lists the pods of a namespace, "" for all, that a field selector selects, and is Read for the answer.
func Each(ctx context.Context, client rest.Interface, namespace string, which fields.Selector, wanted Fields, visit func(*corev1.Pod)) (leftOut int, err error) {
	body, err := client.Get().Namespace(namespace).Resource("pods").
		VersionedParams(&metav1.ListOptions{FieldSelector: which.String()}, metav1.ParameterCodec).Stream(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = body.Close() }() // closing after reading cannot lose data
	return Read(body, wanted, visit)
}

// Fields maps the wanted fields of a protobuf message, by number, to the wanted fields within each; nil: all of it.
type Fields map[protowire.Number]Fields

// pick appends the wanted fields of a protobuf message to out.
func (wanted Fields) pick(out, message []byte) ([]byte, error) {
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
