package nodeloss

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/cluster"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// pruneEvery is the time between two searches for the losses that have ended.
const pruneEvery = time.Minute

// pruneRegularly prunes until ctx ends. It begins as soon as left knows which losses may last.
func (l *Losses) pruneRegularly(ctx context.Context, left func() (map[lossKey]bool, bool)) {
	for ctx.Err() == nil {
		wait := pruneEvery
		if !l.prune(left) {
			wait = kubeclient.BackoffFirst
		}
		kubeclient.Sleep(ctx, wait)
	}
}

// lasting returns the losses that may last; false: the lists of the objects have not arrived yet.
func (r *round) lasting() (map[lossKey]bool, bool) {
	if !r.Nodes.IsSynced() || !r.Volumes.IsSynced() || !r.Contents.IsSynced() || !r.Groups.IsSynced() {
		return nil, false
	}
	return lossesOf(r.Volumes.Each, r.isBack, r.Contents.Each, r.Groups.Each), true
}

// lossesOf returns the losses of which objects are left: of their nodes that are not back, and of the groups of volumes with an
// annotation of a loss. It visits each object once, however many losses there are.
func lossesOf(volumes iter.Seq[*cluster.Volume], isBack func(node string) bool, contents ...iter.Seq[*cluster.Content]) map[lossKey]bool {
	left := map[lossKey]bool{}
	for v := range volumes {
		left[lossKey{node: v.Node}] = true
		if v.Noted {
			vg, _, _ := strings.Cut(v.Handle, "/")
			left[groupLossKey(v.Node, vg)] = true
		}
	}
	for _, kind := range contents {
		for c := range kind {
			left[lossKey{node: c.Node}] = true
		}
	}
	maps.DeleteFunc(left, func(key lossKey, _ bool) bool { return key.group == "" && isBack(key.node) })
	return left
}

// lostSince returns when the controllers first observed a loss, and records it if it is new. An error says that its node has lost too many
// volume groups to be believed.
func (r *round) lostSince(l loss, vg string, now time.Time) (time.Time, error) {
	since, recorded := r.Losses.record(lossKeyOf(l, vg), now)
	if !recorded {
		return time.Time{}, fmt.Errorf("node %s reports the loss of more than %d volume groups", l.node, lossesOfNodeMax)
	}
	return since, nil
}

// watched returns how long this controller has observed a loss: since it began, of one that an earlier controller recorded.
func (r *round) watched(l loss, vg string, now time.Time) time.Duration {
	return min(now.Sub(r.began), now.Sub(r.Losses.seenAt(lossKeyOf(l, vg))))
}

// markedAt returns when a controller recorded an object's loss on it; zero: none did. The controllers first observed the loss at lost.
func (r *round) markedAt(ctx context.Context, now time.Time, l loss, lost time.Time, o metav1.Object) time.Time {
	note := o.GetAnnotations()[api.AnnotationLostSince]
	if l.kind == lossNone {
		at, _ := time.Parse(time.RFC3339, note) // stepClearLoss removes it, even if another client wrote it; text that is not a time counts as no record
		return at
	}
	created := o.GetCreationTimestamp().Time
	at := recordedAt(note, now, created, lost)
	if at.IsZero() && note != "" {
		r.Log.WarnContext(ctx, "the annotation "+api.AnnotationLostSince+" is not nodelvm-controller's record of this loss; replacing it, and the grace period begins now",
			"object", o.GetName(), "says", kubeclient.Quoted(note), "created", created, "lost", lost, "loss", l.String())
	}
	return at
}
