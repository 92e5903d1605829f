package move

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// parkedView is what the target sees of a move that begins: the claim names this node, and the source has parked the PersistentVolume and offers the volume.
func parkedView() *view {
	r := &Record{From: "node-1", To: "node-2", Namespace: "ns", Claim: "db", UID: "uid", Handle: group + "G/pvc-uid", UUID: "u", Group: "vg",
		Policy: corev1.PersistentVolumeReclaimDelete, Capacity: "1Gi", Class: "fast", Modes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}
	pv, claim := r.onSource(true), &corev1.PersistentVolumeClaim{}
	pv.Annotations[api.AnnotationMoveOffer] = `{"move": "m", "text": {}}`
	pv.Status.Phase = corev1.VolumeBound
	claim.Namespace, claim.Name, claim.UID, claim.Spec.VolumeName, claim.Status.Phase = "ns", "db", "uid", pv.Name, corev1.ClaimBound
	claim.Annotations = map[string]string{api.AnnotationMoveTo: "node-2"}
	return &view{node: "node-2", claim: claim, pv: pv, key: "k"}
}

// TestForeignAndMalformedVolumes: whoever holds the token of one node writes the annotations of its PersistentVolumes, which the target of a move reads. It
// copies no volume of another driver, and survives what is no record.
func TestForeignAndMalformedVolumes(t *testing.T) {
	record := func(from, to string) func(v *view) {
		return func(v *view) {
			v.pv.Annotations[api.AnnotationMoveRecord] = strings.Replace(v.pv.Annotations[api.AnnotationMoveRecord], from, to, 1)
		}
	}
	for name, test := range map[string]struct {
		change func(v *view)
		copies bool
	}{
		"as a source writes it":       {func(*view) {}, true},
		"another driver's volume":     {func(v *view) { v.pv.Spec.CSI.Driver = "other.io" }, false},
		"no CSI volume":               {func(v *view) { v.pv.Spec.CSI = nil }, false},
		"no affinity":                 {func(v *view) { v.pv.Spec.NodeAffinity = nil }, false},
		"no term":                     {func(v *view) { v.pv.Spec.NodeAffinity.Required.NodeSelectorTerms = nil }, false},
		"no claim":                    {func(v *view) { v.pv.Spec.ClaimRef = nil }, false},
		"no attributes":               {func(v *view) { v.pv.Spec.CSI.VolumeAttributes = nil }, false},
		"a handle of another driver":  {func(v *view) { v.pv.Spec.CSI.VolumeHandle = "vol-0a1b" }, false},
		"a handle of a megabyte":      {func(v *view) { v.pv.Spec.CSI.VolumeHandle = strings.Repeat("h", 1<<20) }, false},
		"no capacity":                 {func(v *view) { v.pv.Spec.Capacity = nil }, false},
		"no record":                   {func(v *view) { delete(v.pv.Annotations, api.AnnotationMoveRecord) }, false},
		"a record that is no JSON":    {func(v *view) { v.pv.Annotations[api.AnnotationMoveRecord] = "{" }, false},
		"a record of a megabyte":      {func(v *view) { v.pv.Annotations[api.AnnotationMoveRecord] += strings.Repeat(" ", 1<<20) }, false},
		"a capacity that is no size":  {record("1Gi", "much"), false},
		"an empty capacity":           {record("1Gi", ""), false},
		"a capacity beyond all disks": {record("1Gi", "9e999"), false},
		"a capacity without end":      {record("1Gi", "1e999999999"), false},
		"a negative capacity":         {record("1Gi", "-1Gi"), false},
		"fields of other types":       {record(`"capacity":"1Gi"`, `"capacity":1`), false},
		"an offer that is no JSON":    {func(v *view) { v.pv.Annotations[api.AnnotationMoveOffer] = "[" }, false},
		"an answer that is no JSON":   {func(v *view) { v.pv.Annotations[api.AnnotationMoveAnswer] = "\x00" }, true},
	} {
		v := parkedView()
		test.change(v)
		s := decide(v, Grace)
		if copies := s.do == answer || s.do == receive; copies != test.copies || !copies && s.do != wait {
			t.Errorf("%s: the target's step is %q", name, s.do)
		}
		v.local = &Local{Volume: lvm.Volume{ID: lvm.ID{VG: "other", LV: "pvc-uid"}, State: stateReceiving}} // in the middle of a copy
		if s := decide(v, Grace); s.do == finish || s.do == createTarget || s.do == receive && !test.copies {
			t.Errorf("%s, while it copies: the step is %q", name, s.do)
		}
	}
	for _, text := range []string{"", "{", "[]", `{"from": 1}`, `{"from": "a", "to": "b", "uid": "u", "capacity": "x"}`, `{"from": "a", "to": "b", "uid": "u"}`} {
		if r := parseRecord(text); r != nil {
			again, _ := json.Marshal(r.onSource(true))
			t.Errorf("%q is a record of %s", text, again)
		}
	}
}

// TestOnlyTheSourceHandsOver: while the source replaces the PersistentVolume of a cancelled move, a third node can create one of that name, with the handle of
// the source's volume. What it writes there hands nothing over: the source's volume would be the user's, too.
func TestOnlyTheSourceHandsOver(t *testing.T) {
	for node, want := range map[string]action{"node-1": confirm, "node-3": wait} {
		v := parkedView()
		v.rec = parseRecord(v.pv.Annotations[api.AnnotationMoveRecord])
		v.local = &Local{Volume: lvm.Volume{ID: lvm.ID{VG: "other", LV: "pvc-uid"}, State: stateReceived}, Move: "m", Record: v.rec.text()}
		v.pv.Annotations[api.AnnotationHandedOver] = "m"
		v.pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{node}
		if s := decide(v, Grace); s.do != want {
			t.Errorf("when node %s says that the volume is handed over, the step is %q, want %q", node, s.do, want)
		}
	}
}

// TestNoClaimInANotedVolume: an admin may remove the claim from a PersistentVolume whose move is noted, so that another claim can have it.
func TestNoClaimInANotedVolume(t *testing.T) {
	v := parkedView()
	r := parseRecord(v.pv.Annotations[api.AnnotationMoveRecord])
	v.node, v.rec, v.pv = "node-1", r, r.onSource(false)
	v.local = &Local{Volume: lvm.Volume{State: lvm.StateReady}, Record: r.text()}
	v.pv.Annotations, v.pv.Spec.PersistentVolumeReclaimPolicy, v.pv.Spec.ClaimRef = nil, r.Policy, nil
	if s := decide(v, Grace); s.do != forget {
		t.Errorf("the step is %q", s.do)
	}
}

// TestRecordHasRoomForItsEnd: a move does not begin if its record would become too long when the source hands the volume over: the target could not
// note that, and neither node would go on.
func TestRecordHasRoomForItsEnd(t *testing.T) {
	v := parkedView()
	r := parseRecord(v.pv.Annotations[api.AnnotationMoveRecord])
	pv := r.onSource(false)
	for k := range pv.Annotations {
		if k != api.AnnotationProvisionedBy {
			delete(pv.Annotations, k)
		}
	}
	for extra := range MaxRecord {
		pv.Spec.MountOptions = []string{strings.Repeat("a", extra)}
		began, err := newRecord(pv, v.claim, "node-1", "node-2", nil)
		if began == nil {
			if extra == 0 {
				t.Fatal(err)
			}
			return
		}
		began.Confirmed = strings.Repeat("0", maxHold)
		if parseRecord(began.text()) == nil {
			t.Fatalf("with %d bytes more, the record of the end has %d bytes, and at most %d are possible", extra, len(began.text()), MaxRecord)
		}
	}
	t.Error("a record has no limit")
}

// TestCapacityWithoutEnd: a PersistentVolume whose capacity has a huge exponent costs the target nothing.
func TestCapacityWithoutEnd(t *testing.T) {
	v := parkedView()
	v.pv.Spec.Capacity[corev1.ResourceStorage] = resource.MustParse("1e999999999")
	if v.incoming() != nil {
		t.Error("it is accepted")
	}
}
