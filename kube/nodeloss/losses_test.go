package nodeloss

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/cluster"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
)

// lostVolume runs one step of a controller that has run for a day, for a PersistentVolume whose node is gone and whose class
// says release. PersistentVolume and claim are two hours old and have this note. It returns what the step did.
func lostVolume(t *testing.T, note time.Duration, see func(*round)) (deleted bool, patched bool) {
	t.Helper()
	now := time.Now()
	pv, c, late := kubetest.VolumeOn("gone", "data"), kubetest.Claim("data", "late", "pvc-data"), kubetest.Class("late", api.DriverName, storagev1.VolumeBindingWaitForFirstConsumer)
	pv.CreationTimestamp = metav1.NewTime(now.Add(-2 * time.Hour))
	pv.Annotations = map[string]string{api.AnnotationLostSince: now.Add(note).UTC().Format(time.RFC3339)}
	late.Annotations = map[string]string{api.AnnotationOnNodeLoss: api.OnNodeLossRelease}
	r, sent := recordedRound(t, map[string]any{
		"GET /api/v1/persistentvolumes/pvc-data": pv, "GET /api/v1/namespaces/ns/persistentvolumeclaims/data": c,
		"GET /apis/storage.k8s.io/v1/storageclasses/late": late, "PATCH /api/v1/persistentvolumes/pvc-data": pv,
		"GET /api/v1/namespaces/ns/pods":                           &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}},
		"DELETE /api/v1/namespaces/ns/persistentvolumeclaims/data": c,
		"POST /api/v1/namespaces/ns/events":                        &corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}},
	})
	r.began = now.Add(-24 * time.Hour)
	see(r)
	if _, err := r.checkVolume(t.Context(), "pvc-data", "gone"); err != nil {
		t.Fatal(err)
	}
	requests := sent()
	return slices.Contains(requests, "DELETE /api/v1/namespaces/ns/persistentvolumeclaims/data"), slices.Contains(requests, "PATCH /api/v1/persistentvolumes/pvc-data")
}

// TestAnnotationOfAnotherLossDoesNotShortenGracePeriod: the controller releases a claim only if a controller recorded this loss of its
// volume at least the grace period ago. A note from a restore tool or an earlier loss does not count.
func TestAnnotationOfAnotherLossDoesNotShortenGracePeriod(t *testing.T) {
	now := time.Now() // not later than that of any note: the times have whole seconds
	seenBefore := func(ago time.Duration) func(*round) {
		return func(r *round) {
			r.Losses.Load(fmt.Sprintf(`{"gone": %q}`, now.Add(-ago).UTC().Format(time.RFC3339)))
		}
	}
	for name, test := range map[string]struct {
		note    time.Duration
		see     func(*round)
		deleted bool
	}{
		"this loss":                        {-19 * time.Minute, seenBefore(20 * time.Minute), true},
		"as it was first seen":             {-20 * time.Minute, seenBefore(20 * time.Minute), true},
		"older than the volume":            {-3 * time.Hour, seenBefore(24 * time.Hour), false},
		"older than this loss":             {-20 * time.Minute, seenBefore(19 * time.Minute), false},
		"years old, and nothing was seen":  {-5 * 365 * 24 * time.Hour, func(*round) {}, false},
		"of an hour ago, nothing was seen": {-time.Hour, func(*round) {}, false},
		"of an hour ahead":                 {time.Hour, seenBefore(20 * time.Minute), false},
		"the lease cannot be read":         {-19 * time.Minute, func(r *round) { r.Losses.Load(`{"gone": 7}`) }, false},
		"the node was back since": {-19 * time.Minute, func(r *round) {
			seenBefore(20 * time.Minute)(r)
			r.nodeChanged(nil, nodeNamed("gone"))
			r.nodeChanged(nodeNamed("gone"), nil)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			deleted, patched := lostVolume(t, test.note, test.see)
			if deleted != test.deleted || !deleted && !patched {
				t.Errorf("the claim is deleted: %t; the note is written: %t", deleted, patched)
			}
		})
	}
}

// TestClockSetForward: a controller whose clock is set forward watches a new loss for as long as any other one.
func TestClockSetForward(t *testing.T) {
	for watched, deletes := range map[time.Duration]bool{9 * time.Minute: false, 11 * time.Minute: true} {
		deleted, _ := lostVolume(t, -59*time.Minute, func(r *round) {
			hourAgo, key := time.Now().Add(-time.Hour), lossKey{node: "gone"}
			recorded(t, r.Losses, key, hourAgo)
			r.Losses.seen[key] = time.Now().Add(-watched) // less than an hour ago, for the clock was set forward meanwhile
		})
		if deleted != deletes {
			t.Errorf("the loss was watched for %s, and the claim is deleted: %t", watched, deleted)
		}
	}
}

// TestAnnotationOfAnotherLossOfASnapshot checks the same for the content of a snapshot.
func TestAnnotationOfAnotherLossOfASnapshot(t *testing.T) {
	const path = "/apis/snapshot.storage.k8s.io/v1/"
	for ago, deletes := range map[time.Duration]bool{20 * time.Minute: true, 5 * time.Minute: false} { // age of the observed loss
		now := time.Now()
		c, of := kubetest.ContentOf("a", "uid", kubetest.TestVG+"/s-1"), &kubeclient.Snapshot{TypeMeta: metav1.TypeMeta{APIVersion: "snapshot.storage.k8s.io/v1", Kind: kubeclient.KindSnapshot}}
		c.TypeMeta = metav1.TypeMeta{APIVersion: "snapshot.storage.k8s.io/v1", Kind: kubeclient.KindContent}
		c.CreationTimestamp, c.Spec.VolumeSnapshotClassName = metav1.NewTime(now.Add(-2*time.Hour)), "late"
		c.Annotations = map[string]string{api.AnnotationLostSince: now.Add(-20 * time.Minute).UTC().Format(time.RFC3339)}
		of.Namespace, of.Name, of.UID, of.Status.Content = "ns", "nightly", "uid", "a"
		late := &kubeclient.SnapshotClass{TypeMeta: metav1.TypeMeta{APIVersion: "snapshot.storage.k8s.io/v1", Kind: "VolumeSnapshotClass"}, Driver: api.DriverName}
		late.Annotations = map[string]string{api.AnnotationOnNodeLoss: api.OnNodeLossRelease}
		r, sent := recordedRound(t, map[string]any{
			"GET " + path + "volumesnapshotcontents/a": c, "PATCH " + path + "volumesnapshotcontents/a": c,
			"GET " + path + "namespaces/ns/volumesnapshots/nightly": of, "DELETE " + path + "namespaces/ns/volumesnapshots/nightly": of,
			"GET " + path + "volumesnapshotclasses/late": late,
			"POST /api/v1/namespaces/ns/events":          &corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}},
		})
		r.began = now.Add(-24 * time.Hour)
		r.Losses.Load(fmt.Sprintf(`{"node-1": %q}`, now.Add(-ago).UTC().Format(time.RFC3339)))
		if _, err := r.checkContent(t.Context(), "a", "node-1"); err != nil {
			t.Fatal(err)
		}
		if deleted := slices.Contains(sent(), "DELETE "+path+"namespaces/ns/volumesnapshots/nightly"); deleted != deletes {
			t.Errorf("the loss was observed %s ago, and the snapshot is deleted: %t", ago, deleted)
		}
	}
}

// TestLossAnnotationIsWrittenOnce: a controller accepts its own note, even if the clocks of the API server and of earlier controllers
// differ.
func TestLossAnnotationIsWrittenOnce(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for _, created := range []time.Duration{-time.Hour, 0, time.Hour} {
		for _, lost := range []time.Duration{-time.Hour, 0, time.Hour} {
			note := noteAt(now, now.Add(created), now.Add(lost)).Format(time.RFC3339)
			if at := recordedAt(note, now, now.Add(created), now.Add(lost)); at.IsZero() || at.Before(now.Truncate(time.Second)) {
				t.Errorf("created %s, lost %s: %s is read as %s", created, lost, note, at)
			}
		}
	}
}

// recorded records a loss, and fails if the losses refuse it.
func recorded(t *testing.T, l *Losses, key lossKey, now time.Time) time.Time {
	t.Helper()
	since, ok := l.record(key, now)
	if !ok {
		t.Errorf("the loss %s is not recorded", key)
	}
	return since
}

// TestLossesSurviveRestart: the next controller knows the start of each loss; losses that have ended, or of which no object
// is left, are dropped.
func TestLossesSurviveRestart(t *testing.T) {
	now, n, group := time.Now(), lossKey{node: "n"}, groupLossKey("m", kubetest.TestVG)
	var first, second Losses
	since := recorded(t, &first, n, now)
	recorded(t, &first, group, now)
	second.Load(first.Text())
	for _, key := range []lossKey{n, group} {
		if again := recorded(t, &second, key, now.Add(time.Hour)); !again.Equal(since) || since.After(now) || now.Sub(since) > time.Second {
			t.Errorf("%s: seen at %s, then at %s", key, since, again)
		}
	}
	second.end(n)
	if again := recorded(t, &second, n, now.Add(time.Hour)); again.Equal(since) {
		t.Error("a loss that has ended is kept")
	}
	if !second.prune(func() (map[lossKey]bool, bool) { return map[lossKey]bool{n: true}, true }) || strings.Contains(second.Text(), kubetest.TestVG) {
		t.Errorf("what no longer lasts is kept: %s", second.Text())
	}
	second.Load(`{"` + strings.Repeat("<", lossesBytesMax) + `": "2020-01-02T03:04:05Z", "n": "2026-01-02T03:04:05Z"}`)
	for i := range 5000 {
		recorded(t, &second, lossKey{node: fmt.Sprintf("%0250d", i)}, now.Add(2*time.Hour))
	}
	if text := second.Text(); len(text) > lossesBytesMax || !strings.Contains(text, `"n":`) {
		t.Errorf("%d bytes are written, the oldest among them: %t", len(text), strings.Contains(text, `"n":`))
	}
}

// TestLossesOfOneNodeDisplaceNoOthers: nodes report the loss of as many volume groups as they can make up. The lease has the later losses of
// other nodes all the same, and the controller remembers a limited number.
func TestLossesOfOneNodeDisplaceNoOthers(t *testing.T) {
	now := time.Now()
	var l, next Losses
	for node := range 60 {
		for group := range 1000 {
			l.record(groupLossKey(fmt.Sprintf("forger-%d", node), fmt.Sprintf("%038d", group)), now.Add(-time.Hour))
		}
	}
	if most := 60 * lossesOfNodeMax; len(l.all()) > most {
		t.Errorf("%d losses are remembered, want at most %d", len(l.all()), most)
	}
	var honest []lossKey
	for i := range 600 {
		honest = append(honest, lossKey{node: fmt.Sprintf("gone-%d", i)}, groupLossKey(fmt.Sprintf("node-%d", i), kubetest.TestVG))
	}
	for _, key := range honest {
		recorded(t, &l, key, now)
	}
	text := l.Text()
	if len(text) > lossesBytesMax+len(`{}`) {
		t.Errorf("%d bytes are written", len(text))
	}
	next.Load(text)
	for _, key := range honest {
		if since := recorded(t, &next, key, now.Add(time.Hour)); since.After(now) {
			t.Fatalf("the loss %s is not on the lease: the next controller observes it first at %s", key, since)
		}
	}
}

// TestLeaseDoesNotWaitForSearch: however many losses there are, the controller searches once a minute for those that have ended, and the lease
// can be written meanwhile. A loss that is recorded during the search stays.
func TestLeaseDoesNotWaitForSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const minutes, nodes = 10, 600
		var l Losses
		var searches atomic.Int64
		search := func() (map[lossKey]bool, bool) {
			searches.Add(1)
			if !l.mu.TryLock() {
				t.Error("the search holds the lock that the renewal of the lease needs")
				return nil, true
			}
			l.mu.Unlock()
			l.end(lossKey{node: "meanwhile"})
			recorded(t, &l, lossKey{node: "meanwhile"}, time.Now())
			return nil, true
		}
		ctx, stop := context.WithCancel(t.Context())
		go l.pruneRegularly(ctx, search)
		time.Sleep(time.Second / 2) // no loss is recorded at the time of a search
		for i := range nodes {
			time.Sleep(minutes * time.Minute / nodes)
			recorded(t, &l, lossKey{node: fmt.Sprintf("gone-%d", i)}, time.Now())
		}
		if n := searches.Load(); n < minutes || n > minutes+1 {
			t.Errorf("%d searches in %d minutes", n, minutes)
		}
		time.Sleep(pruneEvery)
		synctest.Wait()
		if left := l.all(); len(left) != 1 || left[0].key.node != "meanwhile" {
			t.Errorf("%d losses are left, want the one that was recorded during the search", len(left))
		}
		stop()
		synctest.Wait()
	})
}

// TestSearchVisitsEachObjectOnce: a search for ended losses does not take longer the more losses there are.
func TestSearchVisitsEachObjectOnce(t *testing.T) {
	const nodes, ofNode = 600, 30
	visits := 0
	volumes := func(yield func(*cluster.Volume) bool) {
		for i := range nodes * ofNode {
			visits++
			if !yield(&cluster.Volume{Node: fmt.Sprint(i % nodes), Handle: fmt.Sprintf("group-%d/pvc-%d", i, i), Noted: true}) {
				return
			}
		}
	}
	left := lossesOf(volumes, func(string) bool { return false })
	if visits != nodes*ofNode || len(left) != nodes+nodes*ofNode {
		t.Errorf("%d losses of %d volumes were found in %d visits", len(left), nodes*ofNode, visits)
	}
}

// TestNodeWithTooManyLostGroupsIsIgnored: nothing is done for the volumes of further groups, and an event says so.
func TestNodeWithTooManyLostGroupsIsIgnored(t *testing.T) {
	pv := kubetest.VolumeOn("n", "data")
	pv.Annotations = map[string]string{api.AnnotationVolumeGroupLostSince: "2026-01-02T03:04:05Z"}
	r, sent := recordedRound(t, map[string]any{
		"GET /api/v1/persistentvolumes/pvc-data": pv, "GET /api/v1/nodes/n": nodeNamed("n"),
		"POST /api/v1/namespaces/default/events": &corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}},
	})
	for i := range lossesOfNodeMax {
		recorded(t, r.Losses, groupLossKey("n", fmt.Sprint(i)), time.Now())
	}
	again, err := r.checkVolume(t.Context(), "pvc-data", "n")
	if err != nil || again == 0 {
		t.Errorf("next check in %s, %v", again, err)
	}
	if got := sent(); !slices.Contains(got, "POST /api/v1/namespaces/default/events") || slices.Contains(got, "PATCH /api/v1/persistentvolumes/pvc-data") {
		t.Errorf("requests %q", got)
	}
}

func nodeNamed(name string) *corev1.Node {
	return &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// TestWhenALossEnds: a loss ends when its node returns, and when its last object is deleted.
func TestWhenALossEnds(t *testing.T) {
	onGroup, onNode := kubetest.VolumeOn("n", "data"), kubetest.VolumeOn("gone", "more")
	onGroup.Annotations = map[string]string{api.AnnotationVolumeGroupLostSince: "2026-01-02T03:04:05Z"}
	content := kubetest.ContentOf("a", "uid", kubetest.TestVG+"/s-1")
	unlisted := (&Controller{}).newRound(cluster.NewObjects(fake.NewClientset(), &kubeclient.Client{}, "ns", nil))
	if _, known := unlisted.lasting(); known {
		t.Error("losses end before all objects are listed")
	}
	r, _ := recordedRound(t, nil, nodeNamed("n"), onGroup, onNode, content)
	left, known := r.lasting()
	for key, want := range map[string]bool{
		"n": false, "gone": true, "never": false, "node-1": true, "n/" + kubetest.TestVG: true, "n/other": false, "gone/" + kubetest.TestVG: false,
	} {
		if got := left[parseLossKey(key)]; got != want || !known {
			t.Errorf("%s lasts: %t, want %t", key, got, want)
		}
	}
}

// FuzzLosses: with arbitrary text on the lease and on an object, no loss begins before the object was created or the loss
// was observed, and a controller accepts what another has written.
func FuzzLosses(f *testing.F) {
	f.Add(`{"n": "2026-01-02T03:04:05Z"}`, "n", "2026-01-02T03:04:05Z", int64(1767323045), int64(1767323046))
	f.Add(`{"n": "2026-01-02T03:04:05Z"}`, "\xff", "", int64(0), int64(0))
	f.Add(`{"n": null, "": "x"}`, "", "9999-12-31T23:59:59+23:59", int64(-1<<40), int64(1<<40))
	f.Fuzz(func(t *testing.T, lease, key, note string, created, now int64) {
		const most = 1 << 37 // seconds; a year has four digits in RFC 3339
		born, at := time.Unix(created%most, 0), time.Unix(now%most, 0)
		if born.UTC().Year() < 0 || born.UTC().Year() > 9999 || at.UTC().Year() < 0 || at.UTC().Year() > 9999 {
			return
		}
		var l, next Losses
		l.Load(lease)
		since := recorded(t, &l, lossKey{node: key}, at)
		text := l.Text()
		if next.Load(text); next.Text() != text || len(text) > lossesBytesMax+len(`{}`) {
			t.Errorf("%q is read as %q", text, next.Text())
		}
		if got := recordedAt(note, at, born, since); !got.IsZero() && (got.Before(born) || got.Before(since) || got.After(at) && got.After(born) && got.After(since)) {
			t.Errorf("%q counts from %s: created %s, lost %s, now %s", note, got, born, since, at)
		}
		if own := noteAt(at, born, since); own.Year() >= 0 && own.Year() <= 9999 && recordedAt(own.Format(time.RFC3339), at, born, since).IsZero() != own.IsZero() {
			t.Errorf("the note %s is not accepted: created %s, lost %s, now %s", own, born, since, at)
		}
	})
}
