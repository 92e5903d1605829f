package kube

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A PersistentVolume may bear the annotation annLostSince although no janitor has noted its loss: a backup holds the note of an
// earlier loss, or of another cluster, and a restore tool copies it. So the janitors keep on their lease, which no node may
// write, since when they have seen each loss that lasts. A note that is older than its loss, or than the object that bears
// it, is replaced, and the grace period begins then.

// annLosses is the annotation of the janitor's lease that holds since when each loss has been seen.
const annLosses = "nodelvm.io/losses"

// lossesBytesMax bounds what is written to the lease: all annotations of an object may have 256 KiB. What does not fit is
// kept in memory alone, and its grace period begins again after a restart.
const lossesBytesMax = 128 << 10

// lossKeyMax is the length of a node's name, a slash, and the UUID of a volume group. Whoever makes a PersistentVolume can write a
// longer text for either; that must not take the place of the others.
const lossKeyMax = 253 + 1 + 38

// losses is since when the janitors of a cluster have seen each loss that lasts, by lossKey. Whoever is elected takes it from the
// lease, and writes it back with each renewal.
type losses struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// lossKey names a loss: of a node, or of a volume group on a node that is there.
func lossKey(l loss, vg string) string {
	if l.kind == lossGroup {
		return groupLossKey(l.node, vg)
	}
	return l.node
}

func groupLossKey(node, vg string) string { return node + "/" + vg }

// seen answers since when a loss has been seen. One that is new begins now, and those that no longer last are dropped.
func (l *losses) seen(key string, now time.Time, lasts func(key string) bool) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if since, known := l.since[key]; known {
		return since
	}
	maps.DeleteFunc(l.since, func(key string, _ time.Time) bool { return !lasts(key) })
	if l.since == nil {
		l.since = map[string]time.Time{}
	}
	l.since[key] = now.UTC().Truncate(time.Second) // as a note holds it
	return l.since[key]
}

// ended drops a loss.
func (l *losses) ended(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.since, key)
}

// load takes what the janitor before has written; text that cannot be read is none.
func (l *losses) load(text string) {
	var since map[string]time.Time
	if json.Unmarshal([]byte(text), &since) != nil {
		since = nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since = since
}

// text is what load reads. The oldest losses come first: their grace periods have got the furthest.
func (l *losses) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(l.since), func(a, b string) int { return l.since[a].Compare(l.since[b]) })
	kept, size := map[string]time.Time{}, 0
	for _, key := range keys {
		encoded, err := json.Marshal(key)
		if err != nil || len(key) > lossKeyMax || !utf8.ValidString(key) {
			continue // it names no node
		}
		size += len(encoded) + len(`:"`+time.RFC3339+`",`)
		if size > lossesBytesMax {
			break
		}
		kept[key] = l.since[key]
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return "" // a year of five digits: the grace periods begin again after a restart
	}
	return string(text)
}

// noteAt is when a loss that is noted now counts from: never before the object was made, nor before the loss, by whatever clock.
func noteAt(now, created, lost time.Time) time.Time {
	at := now
	for _, other := range []time.Time{created, lost} {
		if other.After(at) {
			at = other
		}
	}
	return at.UTC().Truncate(time.Second)
}

// notedAt reads when a janitor noted the loss of an object; zero: none can have written this of a loss that was first seen then.
func notedAt(note string, now, created, lost time.Time) time.Time {
	at, err := time.Parse(time.RFC3339, note)
	if err != nil || at.Before(noteAt(created, created, lost)) || at.After(noteAt(now, created, lost)) {
		return time.Time{}
	}
	return at
}

// noted answers since when the janitors have seen an object's loss, and when one of them noted it on the object; zero: none has.
func (r *janitorRound) noted(ctx context.Context, now time.Time, l loss, vg string, o metav1.Object) (lost, marked time.Time) {
	note := o.GetAnnotations()[annLostSince]
	if l.kind == lossNone {
		marked, _ = time.Parse(time.RFC3339, note) // whoever wrote it, it is taken back; what is no time counts as no mark
		return time.Time{}, marked
	}
	created := o.GetCreationTimestamp().Time
	lost = r.losses.seen(lossKey(l, vg), now, r.lasts)
	marked = notedAt(note, now, created, lost)
	if marked.IsZero() && note != "" {
		r.log.WarnContext(ctx, "the annotation "+annLostSince+" cannot be a janitor's note of this loss; it is replaced, and the grace period begins now",
			"object", o.GetName(), "says", quoted(note), "created", created, "lost", lost, "loss", l.String())
	}
	return lost, marked
}

// lasts tells whether a loss may still last: its node is not back, and something is left that was lost with it.
func (r *janitorRound) lasts(key string) bool {
	node, vg, ofGroup := strings.Cut(key, "/")
	if taint, here, _ := r.nodes.find(node); here && taint == lossNone && !ofGroup {
		return false
	}
	lost := func(p place) bool {
		return p.node == node && (!ofGroup || !p.alone && strings.HasPrefix(p.handle, vg+"/"))
	}
	return !r.volumes.isSynced() || len(r.volumes.keys(lost)) > 0 || len(r.contents.keys(lost)) > 0
}
