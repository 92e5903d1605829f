package kube

import (
	"encoding/json"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodelvm/nodelvm/lvm"
)

// FuzzVolumesAndClaims feeds arbitrary PersistentVolumes and claims to the functions that decide on them. None panics, a
// valid chain has references that agree, and the stripped object gives the same decisions as the whole one.
func FuzzVolumesAndClaims(f *testing.F) {
	pv, c := volumeOn("node-1", "data"), claim("data", "late", "pvc-data")
	pv.Annotations = map[string]string{annLostSince: "2026-01-02T03:04:05Z", annGroupLost: "2026-01-02T03:04:05Z", annPolicy: "Delete"}
	for _, o := range []any{pv, c} {
		text, err := json.Marshal(o)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, text)
	}
	volume, err := json.Marshal(pv)
	if err != nil {
		f.Fatal(err)
	}
	bound, err := json.Marshal(c)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(volume, bound)
	f.Add([]byte(`{"spec": {"csi": null, "claimRef": {}, "nodeAffinity": {"required": {"nodeSelectorTerms": [{}]}}}}`), []byte(`{"spec": {"dataSourceRef": {"kind": "VolumeSnapshot"}}}`))
	f.Add([]byte(`{"metadata": {"annotations": {"nodelvm.io/lost-since": "2026-01-02T03:04:05Z"}}}`), bound) // without a node
	f.Fuzz(func(t *testing.T, volume, bound []byte) {
		var pv corev1.PersistentVolume
		var c corev1.PersistentVolumeClaim
		if json.Unmarshal(volume, &pv) != nil || json.Unmarshal(bound, &c) != nil {
			return
		}
		node := nodeOf(&pv)
		if err := chain(&pv, &c, node); err == nil &&
			(node == "" || pv.Spec.ClaimRef.UID != c.UID || pv.Spec.ClaimRef.Name != c.Name || pv.Spec.ClaimRef.Namespace != c.Namespace || c.Spec.VolumeName != pv.Name) {
			t.Errorf("a chain holds from %s to %s", volume, bound)
		} else if err != nil && len(err.Error()) > 4096+len(pv.Name)+len(c.Name)+len(c.Namespace)+len(volume) {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
		kept, matters := keepVolume(&pv)
		if again, still := keepVolume(stripVolume(&pv)); again != kept || still != matters {
			t.Errorf("the watch keeps %+v of %+v", again, kept)
		}
		selecting, matters := keepSelecting(&c)
		if again, still := keepSelecting(stripSelecting(&c)); again != selecting || still != matters {
			t.Errorf("the watch keeps %+v of %+v", again, selecting)
		}
		if open := isOpen(&c); open != isOpen(stripClaim(&c)) || sourceOf(&c) != sourceOf(stripClaim(&c)) && open {
			t.Errorf("the watch keeps another claim of %s", bound)
		}
		resizeTarget(&c)
		mayBind(&pv, &c)
		now := time.Now()
		marked := notedAt(pv.Annotations[annLostSince], now, pv.CreationTimestamp.Time, now)
		what := decide(sight{now: now, began: now, grace: time.Minute, loss: lossOf("n", nil, ""), pv: &pv, claim: &c, optIn: true, marked: marked})
		if what == stepDeleteClaim || what == stepDeletePV || what == stepUnholdPV {
			t.Errorf("step %d as soon as the loss is seen, by %s", what, volume)
		}
	})
}

// FuzzContents checks the same for contents and snapshots.
func FuzzContents(f *testing.F) {
	c, s := contentOf("a", "uid", testVG+"/s-1"), &snapshot{}
	s.Namespace, s.Name, s.UID, s.Status.Content = "ns", "nightly", "uid", "a"
	first, err := json.Marshal(c)
	if err != nil {
		f.Fatal(err)
	}
	second, err := json.Marshal(s)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(first, second)
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var c content
		var s snapshot
		if json.Unmarshal(first, &c) != nil || json.Unmarshal(second, &s) != nil {
			return
		}
		if err := snapshotChain(&c, &s, "node-1"); err == nil && (c.Spec.VolumeSnapshotRef.UID != s.UID || s.Status.Content != c.Name || s.UID == "") {
			t.Errorf("a chain holds from %s to %s", first, second)
		}
		kept, matters := keepContent(&c)
		if again, still := keepContent(stripContent(&c)); again != kept || still != matters {
			t.Errorf("the watch keeps %+v of %+v", again, kept)
		}
		byHand, matters := keepPreProvisioned(&c)
		if again, still := keepPreProvisioned(stripPreProvisioned(&c)); again != byHand || still != matters {
			t.Errorf("the watch keeps %+v of %+v", again, byHand)
		}
		of := lvm.ID{VG: testVG, LV: "s-1"}
		if err := restorable(claim("copy", "thin", ""), &s, &c, "node-1", of); err == nil &&
			(c.Status.SnapshotHandle != of.String() || snapshotChain(&c, &s, "node-1") != nil) {
			t.Errorf("%s is restored from %s and %s", of, first, second)
		}
		now := time.Now()
		lost := contentSight{now: now, began: now, grace: time.Minute, loss: lossOf("n", nil, ""), c: &c, bound: &s, optIn: true,
			marked: notedAt(c.Annotations[annLostSince], now, c.CreationTimestamp.Time, now)}
		if what := decideContent(lost); what == stepDeleteClaim || what == stepUnholdPV {
			t.Errorf("step %d as soon as the loss is seen, by %s", what, first)
		}
		held := lvm.ManagedVolume{Volume: lvm.Volume{ID: of, Name: "snapshot-uid"}, Snapshot: true}
		if standsFor(&c, held) && c.Spec.Driver != DriverName {
			t.Errorf("another driver's content stands for a snapshot: %s", first)
		}
		_ = c.DeepCopyObject()
	})
}

// FuzzEvents: with arbitrary names and texts, an event has a name and a message that the API server accepts.
func FuzzEvents(f *testing.F) {
	f.Add("ns", "data", "uid", "a message")
	f.Add("", "web-0.example", "", "\xff\xfe")
	f.Fuzz(func(t *testing.T, namespace, name, uid, message string) {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			return // no object can have that name
		}
		e := (&teller{}).event(news{aboutClaim(namespace, name, types.UID(uid)), corev1.EventTypeNormal, "Reason", message}, time.Now())
		if wrong := validation.IsDNS1123Subdomain(e.Name); len(wrong) > 0 || len(e.Message) > 1024 || !utf8.ValidString(e.Message) {
			t.Errorf("%s: %v, %d bytes: %q", e.Name, wrong, len(e.Message), e.Message)
		}
	})
}
