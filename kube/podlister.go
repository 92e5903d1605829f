package kube

import (
	"context"
	"fmt"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"

	"github.com/nodelvm/nodelvm/kube/podlist"
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
	err = podlist.Each(ctx, l.client, namespace, fields.OneTermEqualSelector("spec.nodeName", ""), waitingPodFields, func(pod *corev1.Pod) {
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
