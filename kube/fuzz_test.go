package kube

import (
	"encoding/json"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

// FuzzVolumesAndClaims feeds arbitrary PersistentVolumes and claims to the functions that decide on them. None panics, a
// valid chain has references that agree, and the stripped object gives the same decisions as the whole one.
func FuzzVolumesAndClaims(f *testing.F) {
	pv, c := kubetest.VolumeOn("node-1", "data"), kubetest.Claim("data", "late", "pvc-data")
	pv.Annotations = map[string]string{api.AnnotationLostSince: "2026-01-02T03:04:05Z", api.AnnotationVolumeGroupLostSince: "2026-01-02T03:04:05Z", api.AnnotationReclaimPolicy: "Delete"}
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
		node := pending.NodeOf(&pv)
		if err := kubeclient.Chain(&pv, &c, node); err == nil &&
			(node == "" || pv.Spec.ClaimRef.UID != c.UID || pv.Spec.ClaimRef.Name != c.Name || pv.Spec.ClaimRef.Namespace != c.Namespace || c.Spec.VolumeName != pv.Name) {
			t.Errorf("a chain holds from %s to %s", volume, bound)
		} else if err != nil && len(err.Error()) > 4096+len(pv.Name)+len(c.Name)+len(c.Namespace)+len(volume) {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
		if open := isOpen(&c); open != isOpen(stripClaim(&c)) || sourceOf(&c) != sourceOf(stripClaim(&c)) && open {
			t.Errorf("the watch keeps another claim of %s", bound)
		}
		resizeTarget(&c)
		pending.MayBind(&pv, &c)
	})
}

// FuzzContents checks the same for contents and snapshots.
func FuzzContents(f *testing.F) {
	c, s := kubetest.ContentOf("a", "uid", kubetest.SnapshotHandle("uid")), &kubeclient.Snapshot{}
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
		var c kubeclient.Content
		var s kubeclient.Snapshot
		if json.Unmarshal(first, &c) != nil || json.Unmarshal(second, &s) != nil {
			return
		}
		if err := kubeclient.SnapshotChain(&c, &s, "node-1"); err == nil && (c.Spec.VolumeSnapshotRef.UID != s.UID || s.Status.Content != c.Name || s.UID == "") {
			t.Errorf("a chain holds from %s to %s", first, second)
		}
		byHand, matters := keepUnlabelled(&c)
		if again, still := keepUnlabelled(stripUnlabelled(&c)); again != byHand || still != matters {
			t.Errorf("the watch keeps %+v of %+v", again, byHand)
		}
		of := lvm.ID{VG: kubetest.TestVG, LV: lvm.SnapshotName("snapshot-uid")}
		if err := kubeclient.RestoreChain(kubetest.Claim("copy", "thin", ""), &s, &c, "node-1", of); err == nil &&
			(c.Status.SnapshotHandle != of.String() || !kubeclient.OwnsSnapshot(&c, of) && !kubeclient.OwnsMember(&c, &s, of) || kubeclient.SnapshotChain(&c, &s, "node-1") != nil) {
			t.Errorf("%s is restored from %s and %s", of, first, second)
		}
		if kubeclient.HasSnapshot(&c, of) && c.Spec.Driver != api.DriverName {
			t.Errorf("another driver's content refers to a snapshot: %s", first)
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
		e := (&kubeclient.EventRecorder{}).Object(kubeclient.Event{About: kubeclient.AboutClaim(namespace, name, types.UID(uid)), Kind: corev1.EventTypeNormal, Reason: "Reason", Message: message}, time.Now())
		if wrong := validation.IsDNS1123Subdomain(e.Name); len(wrong) > 0 || len(e.Message) > 1024 || !utf8.ValidString(e.Message) {
			t.Errorf("%s: %v, %d bytes: %q", e.Name, wrong, len(e.Message), e.Message)
		}
	})
}
