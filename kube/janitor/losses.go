package janitor

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

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// A PersistentVolume may have the annotation AnnotationLostSince although no janitor has recorded this loss: a backup contains the
// record of an earlier loss, or of another cluster, and a restore tool copies it. So the janitors store on their lease, which no
// node may write, when they first observed each current loss. A janitor replaces a record that is older than its loss, or than the
// object that has it; then the grace period begins again.

// lossesBytesMax bounds that annotation: all annotations of an object may have 256 KiB. Further losses are kept only in
// memory, and their grace periods begin again after a restart.
const lossesBytesMax = 128 << 10

// lossKeyMax is the length of a node's name, a slash, and the UUID of a volume group. Whoever creates a PersistentVolume
// can write a longer text for either, which must not displace other losses.
const lossKeyMax = 253 + 1 + 38

// losses holds when the janitors of a cluster first observed each current loss, by lossKey. The elected janitor reads it
// from the lease, and writes it back with each renewal.
type losses struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// lossKey identifies a loss: of a node, or of a volume group on an existing node.
func lossKey(l loss, vg string) string {
	if l.kind == lossGroup {
		return groupLossKey(l.node, vg)
	}
	return l.node
}

func groupLossKey(node, vg string) string { return node + "/" + vg }

// seen returns when a loss was first observed: now, if it is new. It drops those that have ended.
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
	l.since[key] = now.UTC().Truncate(time.Second) // the precision of the annotation
	return l.since[key]
}

// ended drops a loss.
func (l *losses) ended(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.since, key)
}

// load parses the text of the previous janitor, and ignores text that it cannot parse.
func (l *losses) load(text string) {
	var since map[string]time.Time
	if json.Unmarshal([]byte(text), &since) != nil {
		since = nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since = since
}

// text returns the text for load. The oldest losses come first, because most of their grace periods has passed.
func (l *losses) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(l.since), func(a, b string) int { return l.since[a].Compare(l.since[b]) })
	kept, size := map[string]time.Time{}, 0
	for _, key := range keys {
		encoded, err := json.Marshal(key)
		if err != nil || len(key) > lossKeyMax || !utf8.ValidString(key) {
			continue // not a valid node name
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

// noteAt returns the time to record for a loss now: never before the object was created, nor before the loss, by any clock.
func noteAt(now, created, lost time.Time) time.Time {
	at := now
	for _, other := range []time.Time{created, lost} {
		if other.After(at) {
			at = other
		}
	}
	return at.UTC().Truncate(time.Second)
}

// RecordedAt returns when a janitor recorded the loss of an object; zero: none can have written this note of a loss that was
// first observed at lost.
func RecordedAt(note string, now, created, lost time.Time) time.Time {
	at, err := time.Parse(time.RFC3339, note)
	if err != nil || at.Before(noteAt(created, created, lost)) || at.After(noteAt(now, created, lost)) {
		return time.Time{}
	}
	return at
}

// noted returns when the janitors first observed an object's loss, and when one of them recorded it on the object; zero:
// none did.
func (r *janitorRound) noted(ctx context.Context, now time.Time, l loss, vg string, o metav1.Object) (lost, marked time.Time) {
	note := o.GetAnnotations()[api.AnnotationLostSince]
	if l.kind == lossNone {
		marked, _ = time.Parse(time.RFC3339, note) // stepClearLoss removes it, even if another client wrote it; text that is not a time counts as no record
		return time.Time{}, marked
	}
	created := o.GetCreationTimestamp().Time
	lost = r.losses.seen(lossKey(l, vg), now, r.lasts)
	marked = RecordedAt(note, now, created, lost)
	if marked.IsZero() && note != "" {
		r.log.WarnContext(ctx, "the annotation "+api.AnnotationLostSince+" is not a janitor's record of this loss; replacing it, and the grace period begins now",
			"object", o.GetName(), "says", kubeclient.Quoted(note), "created", created, "lost", lost, "loss", l.String())
	}
	return lost, marked
}

// lasts reports whether a loss may last: its node is not back, and objects that were lost with it are left.
func (r *janitorRound) lasts(key string) bool {
	node, vg, ofGroup := strings.Cut(key, "/")
	if taint, here, _ := r.nodes.Find(node); here && taint == lossNone && !ofGroup {
		return false
	}
	lost := func(p place) bool {
		return p.node == node && (!ofGroup || !p.alone && strings.HasPrefix(p.handle, vg+"/"))
	}
	return !r.volumes.IsSynced() || len(r.volumes.Keys(lost)) > 0 || len(r.contents.Keys(lost)) > 0
}
