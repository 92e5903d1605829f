package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	names "k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/dashboard"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
	"github.com/nodelvm/nodelvm/report"
)

// dashboardSource reads the cluster for the dashboard, with the user's rights.
type dashboardSource struct {
	cluster   *cluster
	namespace string // the kubeconfig's: read if the user may not read all

	mu   sync.Mutex
	pods map[string]corev1.Pod // of the driver, by node
}

func newDashboardSource(c *cluster, namespace string) *dashboardSource {
	return &dashboardSource{cluster: c, namespace: namespace}
}

// Nodes lists the nodes with a driver pod.
func (s *dashboardSource) Nodes(ctx context.Context) ([]string, error) {
	drivers, err := s.cluster.drivers(ctx)
	if err != nil {
		return nil, err
	}
	pods := map[string]corev1.Pod{}
	var names []string
	for _, pod := range drivers {
		node := pod.Spec.NodeName
		if other, known := pods[node]; node == "" || known && other.Status.Phase == corev1.PodRunning {
			continue // not scheduled, or the second pod during a rollout
		}
		pods[node] = pod
		names = append(names, node)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods = pods
	return names, nil
}

// Page reads a node's status page.
func (s *dashboardSource) Page(ctx context.Context, node string) (report.Node, error) {
	s.mu.Lock()
	pod, known := s.pods[node]
	s.mu.Unlock()
	if !known {
		return report.Node{}, fmt.Errorf("no pod of the driver is on node %s", node)
	}
	return s.cluster.page(ctx, &pod, nil)
}

// Objects lists volumes, and the claims and pods of all namespaces, or of the kubeconfig's if the user may not list all.
func (s *dashboardSource) Objects(ctx context.Context) (o dashboard.Objects) {
	volumes, err := s.cluster.volumes(ctx)
	if err != nil {
		o.Limits = append(o.Limits, fmt.Sprintf("You see no PersistentVolumes, and a bound claim only while a pod runs with it: %v", err))
	}
	for _, pv := range volumes {
		size := pv.Spec.Capacity[corev1.ResourceStorage]
		o.Volumes = append(o.Volumes, dashboard.Volume{Name: pv.Name, Handle: pv.Spec.CSI.VolumeHandle, Node: pending.NodeOf(&pv), Claim: claimOf(&pv),
			Class: pv.Spec.StorageClassName, Phase: string(pv.Status.Phase), Size: lvm.Bytes(size.Value()),
			Encryption: pv.Spec.CSI.VolumeAttributes[api.AttributeEncryption], KeySecret: keySecretOf(&pv)})
	}
	claims := listOrOwn[corev1.PersistentVolumeClaim](ctx, s, "persistentvolumeclaims", "claims", &o)
	users := usersOf(listOrOwn[corev1.Pod](ctx, s, "pods", "pods", &o))
	o.Pods = map[string][]string{}
	for claim := range users {
		for _, u := range users[claim] {
			o.Pods[claim] = append(o.Pods[claim], u.name)
		}
	}
	for _, claim := range claims {
		if mine, ok := dashboardClaim(&claim, users[claim.Namespace+"/"+claim.Name]); ok {
			o.Claims = append(o.Claims, mine)
		}
	}
	return o
}

// listOrOwn lists a resource in all namespaces; if that is forbidden, in the kubeconfig's namespace. It adds what the user does not see to
// the limits.
func listOrOwn[T any](ctx context.Context, s *dashboardSource, resource, what string, o *dashboard.Objects) []T {
	objects, err := list[T](ctx, s.cluster.in("", resource))
	own := apierrors.IsForbidden(err)
	if own {
		objects, err = list[T](ctx, s.cluster.in(s.namespace, resource))
	}
	switch {
	case err != nil:
		o.Limits = append(o.Limits, fmt.Sprintf("You see no %s: %v", what, err))
	case own:
		o.Limits = append(o.Limits, "You may not list "+what+" of all namespaces: you see those of the namespace "+s.namespace+".")
	}
	return objects
}

// dashboardClaim converts a claim; ok is false unless it is the driver's and its node is known without its PersistentVolume.
func dashboardClaim(claim *corev1.PersistentVolumeClaim, users []user) (dashboard.Claim, bool) {
	node := nodeWithoutVolume(claim, users)
	if api.ProvisionerOf(claim.Annotations) != api.DriverName || node == "" {
		return dashboard.Claim{}, false
	}
	size, sized := claim.Status.Capacity[corev1.ResourceStorage]
	if !sized {
		size = claim.Spec.Resources.Requests[corev1.ResourceStorage]
	}
	class := api.ClassOf(claim.Annotations, claim.Spec.StorageClassName)
	return dashboard.Claim{Claim: claim.Namespace + "/" + claim.Name, Node: node, Class: class, Phase: string(claim.Status.Phase),
		Volume: claim.Spec.VolumeName, Size: lvm.Bytes(size.Value())}, true
}

// eventsShown limits the events that the API server sends about one object.
const eventsShown = "50"

// Events lists the events about a claim and its pods, the latest first.
func (s *dashboardSource) Events(ctx context.Context, namespace, claim string, pods []string) (all []dashboard.Event, err error) {
	add := func(kind, name string) error {
		selector := fields.Set{"involvedObject.kind": kind, "involvedObject.name": name}.AsSelector().String()
		events, err := list[corev1.Event](ctx, s.cluster.in(namespace, "events").Param("fieldSelector", selector).Param("limit", eventsShown))
		for _, e := range events {
			at := cmp.Or(e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time)
			all = append(all, dashboard.Event{Time: at, Type: e.Type, Reason: e.Reason, Object: kind + " " + name, Message: e.Message, Count: e.Count})
		}
		return err
	}
	for _, what := range []string{namespace, claim} {
		if what == "" || len(names.IsPathSegmentName(what)) > 0 {
			return nil, fmt.Errorf("%q is no name of a namespace or claim", what)
		}
	}
	if err := add("PersistentVolumeClaim", claim); err != nil {
		return nil, err
	}
	for _, pod := range pods {
		if err := add("Pod", pod); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(all, func(a, b dashboard.Event) int { return b.Time.Compare(a.Time) })
	return all, nil
}
