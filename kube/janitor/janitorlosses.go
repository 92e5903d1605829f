package janitor

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// pruneEvery is the time between two searches for the losses that have ended.
const pruneEvery = time.Minute

// pruneRegularly prunes until ctx ends. It begins as soon as left knows which losses may last.
func (l *losses) pruneRegularly(ctx context.Context, left func() (map[lossKey]bool, bool)) {
	for ctx.Err() == nil {
		wait := pruneEvery
		if !l.prune(left) {
			wait = kubeclient.BackoffFirst
		}
		kubeclient.Sleep(ctx, wait)
	}
}

// lasting returns the losses that may last; false: the lists of the objects have not arrived yet.
func (r *janitorRound) lasting() (map[lossKey]bool, bool) {
	if !r.nodes.IsSynced() || !r.volumes.IsSynced() || !r.contents.IsSynced() {
		return nil, false
	}
	isBack := func(node string) bool {
		taint, here, _ := r.nodes.Find(node)
		return here && taint == lossNone
	}
	return lossesOf(r.volumes.Each, r.contents.Each, isBack), true
}

// lossesOf returns the losses of which objects are left: of their nodes that are not back, and of the groups of volumes with an
// annotation of a loss. It visits each object once, however many losses there are.
func lossesOf(volumes, contents iter.Seq[place], isBack func(node string) bool) map[lossKey]bool {
	left := map[lossKey]bool{}
	for p := range volumes {
		left[lossKey{node: p.node}] = true
		if !p.alone {
			vg, _, _ := strings.Cut(p.handle, "/")
			left[groupLossKey(p.node, vg)] = true
		}
	}
	for p := range contents {
		left[lossKey{node: p.node}] = true
	}
	maps.DeleteFunc(left, func(key lossKey, _ bool) bool { return key.group == "" && isBack(key.node) })
	return left
}

// lostSince returns when the janitors first observed a loss, and records it if it is new. An error says that its node has lost too many
// volume groups to be believed.
func (r *janitorRound) lostSince(l loss, vg string, now time.Time) (time.Time, error) {
	since, recorded := r.losses.record(lossKeyOf(l, vg), now)
	if !recorded {
		return time.Time{}, fmt.Errorf("node %s reports the loss of more than %d volume groups", l.node, lossesOfNodeMax)
	}
	return since, nil
}

// markedAt returns when a janitor recorded an object's loss on it; zero: none did. The janitors first observed the loss at lost.
func (r *janitorRound) markedAt(ctx context.Context, now time.Time, l loss, lost time.Time, o metav1.Object) time.Time {
	note := o.GetAnnotations()[api.AnnotationLostSince]
	if l.kind == lossNone {
		at, _ := time.Parse(time.RFC3339, note) // stepClearLoss removes it, even if another client wrote it; text that is not a time counts as no record
		return at
	}
	created := o.GetCreationTimestamp().Time
	at := RecordedAt(note, now, created, lost)
	if at.IsZero() && note != "" {
		r.log.WarnContext(ctx, "the annotation "+api.AnnotationLostSince+" is not a janitor's record of this loss; replacing it, and the grace period begins now",
			"object", o.GetName(), "says", kubeclient.Quoted(note), "created", created, "lost", lost, "loss", l.String())
	}
	return at
}
