package kube

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/nodelvm/nodelvm/kube/podlist"
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

// waitingPodFields are the fields of a Pod that waitingPodOf reads (k8s.io/api/core/v1/generated.proto).
var waitingPodFields = podlist.Fields{
	1: {1: nil, 3: nil, 5: nil, 8: nil, 9: nil}, // metadata: name, namespace, uid, creationTimestamp, deletionTimestamp
	2: { // spec
		1:  {1: nil, 2: {10: nil, 29: {}}}, // volumes: name, persistentVolumeClaim, and the presence of ephemeral
		38: nil,                            // schedulingGates
	},
	3: {1: nil}, // status: phase
}

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
	_, err = podlist.Each(ctx, l.client, namespace, fields.OneTermEqualSelector("spec.nodeName", ""), waitingPodFields, func(pod *corev1.Pod) {
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
