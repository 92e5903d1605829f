package scaledown

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

const (
	interval = 5 * time.Second  // Between two rounds, which read from memory.
	repeated = 20 * time.Minute // The API server deletes an event after an hour.
)

// Reporter writes the events.
type Reporter struct {
	Client *kubeclient.Client
	Events *kubeclient.EventRecorder
	Log    *slog.Logger

	written map[string]report // by node
}

// report is the last event about a node.
type report struct {
	message string
	at      time.Time
}

// Run works until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	v := newView()
	var parts sync.WaitGroup
	defer parts.Wait()
	v.watch(ctx, r.Client, &parts)
	for ; ctx.Err() == nil; kubeclient.Sleep(ctx, interval) {
		if s, known := v.state(); known {
			if err := r.round(ctx, s, time.Now()); err != nil && ctx.Err() == nil {
				r.Log.WarnContext(ctx, "cannot write an event about the removal of a node with volumes; will retry", "error", err)
			}
		}
	}
}

// round writes the events that are missing or out of date. The event of a node that is no longer about to be removed becomes one of
// type Normal; a deleted node needs none.
func (r *Reporter) round(ctx context.Context, s state, now time.Time) error {
	if r.written == nil {
		r.written = map[string]report{}
	}
	var all error
	due := warnings(s)
	for _, node := range slices.Sorted(maps.Keys(due)) {
		if last := r.written[node]; last.message == due[node] && now.Sub(last.at) < repeated {
			continue
		}
		if err := r.record(ctx, node, corev1.EventTypeWarning, due[node]); err != nil {
			all = errors.Join(all, err)
			continue
		}
		r.written[node] = report{due[node], now}
	}
	for _, node := range slices.Sorted(maps.Keys(r.written)) {
		if due[node] != "" {
			continue
		}
		if _, exists := s.nodes[node]; exists {
			if err := r.record(ctx, node, corev1.EventTypeNormal, "resolved: "+r.written[node].message); err != nil {
				all = errors.Join(all, err)
				continue
			}
		}
		delete(r.written, node)
	}
	return all
}

func (r *Reporter) record(ctx context.Context, node, kind, message string) error {
	return r.Events.Record(ctx, kubeclient.Event{About: kubeclient.AboutNode(node), Kind: kind, Reason: api.ReasonNodeRemovalLosesVolumes, Message: message})
}

// view has a Reporter's watches.
type view struct {
	nodes   *kubeclient.FilteredStore[node]
	volumes *kubeclient.FilteredStore[volume]
	classes *kubeclient.FilteredStore[string] // those whose volumes may go with their node: the name
}

type node struct {
	name    string
	removal *announcement
}

func newView() *view {
	return &view{nodes: kubeclient.NewFilteredStore(keepNode), volumes: kubeclient.NewFilteredStore(keepVolume), classes: kubeclient.NewFilteredStore(keepReleased)}
}

func (v *view) watch(ctx context.Context, client *kubeclient.Client, parts *sync.WaitGroup) {
	parts.Go(func() { kubeclient.Reflect(ctx, client.Core, "nodes", "", &corev1.Node{}, v.nodes) })
	parts.Go(func() {
		kubeclient.Reflect(ctx, client.Core, "persistentvolumes", "", &corev1.PersistentVolume{}, v.volumes)
	})
	parts.Go(func() {
		kubeclient.Reflect(ctx, client.Storage, "storageclasses", "", &storagev1.StorageClass{}, v.classes)
	})
}

// state returns the content of the watches; false: not all lists have arrived.
func (v *view) state() (state, bool) {
	if !v.nodes.IsSynced() || !v.volumes.IsSynced() || !v.classes.IsSynced() {
		return state{}, false
	}
	s := state{nodes: map[string]*announcement{}, volumes: v.volumes.All(), released: map[string]bool{}}
	for _, n := range v.nodes.All() {
		s.nodes[n.name] = n.removal
	}
	for _, class := range v.classes.All() {
		s.released[class] = true
	}
	return s, true
}

func keepNode(o any) (node, bool) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return node{}, false
	}
	return node{n.Name, announced(n.Spec.Taints)}, true
}

func keepVolume(o any) (volume, bool) {
	pv, ok := o.(*corev1.PersistentVolume)
	if !ok || pv.DeletionTimestamp != nil || pv.Spec.CSI == nil || pv.Spec.CSI.Driver != api.DriverName {
		return volume{}, false
	}
	size := pv.Spec.Capacity[corev1.ResourceStorage]
	v := volume{pending.NodeOf(pv), pv.Spec.StorageClassName, lvm.Bytes(size.Value())}
	return v, v.node != ""
}

func keepReleased(o any) (string, bool) {
	c, ok := o.(*storagev1.StorageClass)
	if !ok || !api.ReleasesOnNodeLoss(c.Provisioner, c.Annotations) {
		return "", false
	}
	return c.Name, true
}
