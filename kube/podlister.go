package kube

import (
	"context"
	"fmt"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
)

// podListings bounds the lists of pods in flight; further callers share the next one.
const podListings = 4

// podLister lists the pods that wait for a node. It watches and keeps nothing, so an idle node costs nothing. A burst of
// claims costs a few lists: all callers that asked before a list began may share it.
type podLister struct {
	client   rest.Interface
	requests singleflight.Group // by namespace
	slots    chan struct{}
}

func newPodLister(client rest.Interface) *podLister {
	return &podLister{client: client, slots: make(chan struct{}, podListings)}
}

// waiting returns the pods of a namespace that wait for a node with claims, as of a time after the call.
func (l *podLister) waiting(ctx context.Context, namespace string) ([]waitingPod, error) {
	flight := l.requests.DoChan(namespace, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), podClaimsTimeout)
		defer cancel()
		l.slots <- struct{}{}
		defer func() { <-l.slots }()
		l.requests.Forget(namespace) // later callers may know of a pod that this list lacks
		return l.list(ctx, namespace)
	})
	select {
	case result := <-flight:
		if result.Err != nil {
			return nil, result.Err
		}
		return result.Val.([]waitingPod), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("cannot list the pods of namespace %s that wait for a node: %w", namespace, ctx.Err())
	}
}

func (l *podLister) list(ctx context.Context, namespace string) (pods []waitingPod, err error) {
	size := 0
	err = l.each(ctx, namespace, fields.OneTermEqualSelector("spec.nodeName", ""), waitingPodFields, func(pod *corev1.Pod) {
		p, matters := waitingPodOf(pod)
		if !matters || size+p.size() > namesMost {
			return
		}
		size += p.size()
		pods = append(pods, p)
	})
	if err != nil {
		return nil, fmt.Errorf("cannot list the pods of namespace %s that wait for a node: %w", namespace, err)
	}
	return pods, nil
}

// each lists the pods of a namespace, "" for all, that a field selector selects. It passes on the wanted fields of each pod, which is valid
// until the next one.
func (l *podLister) each(ctx context.Context, namespace string, which fields.Selector, wanted fieldTree, visit func(*corev1.Pod)) error {
	body, err := l.client.Get().Namespace(namespace).Resource("pods").
		VersionedParams(&metav1.ListOptions{FieldSelector: which.String()}, metav1.ParameterCodec).Stream(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }() // closing after reading cannot lose data
	return readPods(body, wanted, visit)
}
