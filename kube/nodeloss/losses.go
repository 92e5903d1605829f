package nodeloss

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// A PersistentVolume may have the annotation AnnotationLostSince although no controller has recorded this loss: a backup contains the
// record of an earlier loss, or of another cluster, and a restore tool copies it. So the controllers store on their lease, which no
// node may write, when they first observed each current loss. A controller replaces a record that is older than its loss, or than the
// object that has it; then the grace period begins again.
//
// A node creates PersistentVolumes and reports lost volume groups: its token can make up any number of losses. They must neither
// displace the losses of other nodes nor delay the renewal of the lease.

// lossesBytesMax bounds that annotation: all annotations of an object may have 256 KiB. Further losses are kept only in
// memory, and their grace periods begin again after a restart.
const lossesBytesMax = 128 << 10

// lossesOfNodeMax is how many lost volume groups of a node are recorded at once.
const lossesOfNodeMax = 64

// lossKeyMax is the length of a node's name, a slash, and the UUID of a volume group. Whoever creates a PersistentVolume
// can write a longer text for either, which must not displace other losses.
const lossKeyMax = 253 + 1 + 38

// Losses holds when the controllers of a cluster first observed each current loss. The elected controller reads it from the lease, and
// writes it back with each renewal, which waits for the lock: no function holds it for long.
type Losses struct {
	mu    sync.Mutex
	since map[string]map[string]time.Time // by the node and the group of the lossKey
	seen  map[lossKey]time.Time           // When this process recorded it, by the clock that is never set; not those that it has loaded.
}

// lossKey identifies a loss: of a node, or of a volume group on an existing node.
type lossKey struct {
	node  string
	group string // a slash and the UUID of the volume group; "": the node is lost
}

// lossRecord is a loss, and when a controller first observed it.
type lossRecord struct {
	key   lossKey
	since time.Time
}

// lossKeyOf returns the key of the loss of a volume that is in that volume group.
func lossKeyOf(l loss, vg string) lossKey {
	if l.kind == lossGroup {
		return groupLossKey(l.node, vg)
	}
	return lossKey{node: l.node}
}

func groupLossKey(node, vg string) lossKey { return lossKey{node, "/" + vg} }

// String returns the key's form on the lease.
func (k lossKey) String() string { return k.node + k.group }

func parseLossKey(text string) lossKey {
	node, vg, ofGroup := strings.Cut(text, "/")
	if ofGroup {
		return groupLossKey(node, vg)
	}
	return lossKey{node: node}
}

// record returns when a loss was first observed: now, if it is new. false: it is one of more than lossesOfNodeMax groups of its node,
// and was not recorded.
func (l *Losses) record(key lossKey, now time.Time) (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ofNode := l.since[key.node]
	if since, known := ofNode[key.group]; known {
		return since, true
	}
	if key.group != "" && len(ofNode) >= lossesOfNodeMax {
		return time.Time{}, false
	}
	since := now.UTC().Truncate(time.Second) // the precision of the annotation
	l.put(lossRecord{key, since})
	if l.seen == nil {
		l.seen = map[lossKey]time.Time{}
	}
	l.seen[key] = now
	return since, true
}

// seenAt returns when this process recorded a loss; zero: an earlier one did.
func (l *Losses) seenAt(key lossKey) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[key]
}

func (l *Losses) put(r lossRecord) {
	if l.since == nil {
		l.since = map[string]map[string]time.Time{}
	}
	if l.since[r.key.node] == nil {
		l.since[r.key.node] = map[string]time.Time{}
	}
	l.since[r.key.node][r.key.group] = r.since
}

// end drops a loss.
func (l *Losses) end(key lossKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(key)
}

func (l *Losses) drop(key lossKey) {
	delete(l.seen, key)
	delete(l.since[key.node], key.group)
	if len(l.since[key.node]) == 0 {
		delete(l.since, key.node)
	}
}

// prune drops the losses that left does not return; false: left does not know them yet. left may search for long, so it runs without
// the lock. A loss that was recorded meanwhile stays.
func (l *Losses) prune(left func() (map[lossKey]bool, bool)) bool {
	before := l.all()
	stay, known := left()
	if !known {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range before {
		if !stay[r.key] && l.since[r.key.node][r.key.group].Equal(r.since) {
			l.drop(r.key)
		}
	}
	return true
}

// all returns a copy, in no order.
func (l *Losses) all() []lossRecord {
	l.mu.Lock()
	defer l.mu.Unlock()
	var records []lossRecord
	for node, ofNode := range l.since {
		for group, since := range ofNode {
			records = append(records, lossRecord{lossKey{node, group}, since})
		}
	}
	return records
}

// Load replaces the losses with those in the text of the previous controller: with none, if it cannot parse the text.
func (l *Losses) Load(text string) {
	var since map[string]time.Time
	if json.Unmarshal([]byte(text), &since) != nil {
		since = nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since, l.seen = nil, nil
	for key, at := range since {
		l.put(lossRecord{parseLossKey(key), at})
	}
}

// Text returns the text for Load: the first losses of inOrder that fit.
func (l *Losses) Text() string {
	kept, size := map[string]time.Time{}, 0
	for _, r := range inOrder(l.all()) {
		key := r.key.String()
		encoded, err := json.Marshal(key)
		if err != nil || len(key) > lossKeyMax || !utf8.ValidString(key) || strings.Contains(r.key.node, "/") {
			continue // not a valid node name
		}
		size += len(encoded) + len(`:"`+time.RFC3339+`",`)
		if size > lossesBytesMax {
			break
		}
		kept[key] = r.since
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return "" // a year of five digits: the grace periods begin again after a restart
	}
	return string(text)
}

// inOrder returns the lost nodes, then the oldest lost group of each node, then the second oldest of each node, and so on: a node that
// reports many cannot displace the losses of others. Among equals the older comes first, because most of its grace period has passed.
func inOrder(records []lossRecord) []lossRecord {
	slices.SortFunc(records, func(a, b lossRecord) int {
		return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.key.node, b.key.node), cmp.Compare(a.key.group, b.key.group))
	})
	groups, rank := map[string]int{}, map[lossKey]int{} // groups: how many of a node have a rank
	for _, r := range records {
		if r.key.group != "" {
			groups[r.key.node]++
			rank[r.key] = groups[r.key.node]
		}
	}
	slices.SortStableFunc(records, func(a, b lossRecord) int { return cmp.Compare(rank[a.key], rank[b.key]) })
	return records
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

// recordedAt returns when a controller recorded the loss of an object; zero: none can have written this note of a loss that was
// first observed at lost.
func recordedAt(note string, now, created, lost time.Time) time.Time {
	at, err := time.Parse(time.RFC3339, note)
	if err != nil || at.Before(noteAt(created, created, lost)) || at.After(noteAt(now, created, lost)) {
		return time.Time{}
	}
	return at
}
