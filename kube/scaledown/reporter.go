package scaledown

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/cluster"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

const (
	interval = 5 * time.Second  // Between two rounds, which read from memory.
	repeated = 20 * time.Minute // The API server deletes an event after an hour.
)

// Reporter writes the events.
type Reporter struct {
	Events *kubeclient.EventRecorder
	Log    *slog.Logger

	written map[string]report // by node
}

// report is the last event about a node.
type report struct {
	message string
	at      time.Time
}

// Run works until ctx ends. Objects.Run must run it.
func (r *Reporter) Run(ctx context.Context, objects *cluster.Objects) {
	for ; ctx.Err() == nil; kubeclient.Sleep(ctx, interval) {
		if s, known := stateOf(objects); known {
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

// stateOf returns the facts that a Reporter decides from; false: not all lists have arrived.
func stateOf(o *cluster.Objects) (state, bool) {
	if !o.Nodes.IsSynced() || !o.Volumes.IsSynced() || !o.Classes.IsSynced() {
		return state{}, false
	}
	s := state{nodes: map[string]*announcement{}, volumes: o.Volumes.Each, released: map[string]bool{}}
	for n := range o.Nodes.Each {
		s.nodes[n.Name] = announced(n.Spec.Taints)
	}
	for class := range o.Classes.Each {
		if api.ReleasesOnNodeLoss(class.Provisioner, class.Annotations) {
			s.released[class.Name] = true
		}
	}
	return s, true
}
