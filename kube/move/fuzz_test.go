package move

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// FuzzAnnotations: whoever holds the token of one node writes the annotations of its PersistentVolumes. Whatever they say, a node takes only steps that the state
// of the copy on it allows, and hands over, deletes or discards a volume only for the right answer.
func FuzzAnnotations(f *testing.F) {
	genuine := parkedView().pv.Annotations
	own := parseRecord(genuine[api.AnnotationMoveRecord])
	target := map[lvm.VolumeState][]action{
		"":             {wait, answer, receive},
		stateReceiving: {wait, note, answer, receive, discard},
		stateReceived:  {wait, note, answer, confirm, discard},
	}
	source := map[lvm.VolumeState][]action{
		lvm.StateReady: {wait, publishOffer, takeRound, dropFormer, hold},
		stateMoving:    {wait, publishOffer, handOver},
		stateMoved:     {wait, announce, deleteVolume},
	}
	for n := range byte(6) {
		f.Add(genuine[api.AnnotationMoveRecord], genuine[api.AnnotationMoveOffer], `{"received": "m", "round": "m", "confirmed": "m"}`, "m", n, true)
		f.Add(genuine[api.AnnotationMoveRecord], `{"move": "later", "text": {"size": -1}}`, `{"problem": "p", "sent": -1, "done": 5}`, "", n, false)
	}
	f.Add(genuine[api.AnnotationMoveRecord], `{"move": "m", "text": {}}`, `{"problem": "`+strings.Repeat("p", 1<<16)+`"}`, "", byte(4), false)
	f.Add(genuine[api.AnnotationMoveRecord], `{"move": "`+strings.Repeat("m", 1<<16)+`", "text": {}}`, "", "", byte(0), false)
	states := []lvm.VolumeState{"", stateReceiving, stateReceived, lvm.StateReady, stateMoving, stateMoved}
	f.Fuzz(func(t *testing.T, record, offer, said, handed string, n byte, used bool) {
		state := states[int(n)%len(states)]
		v := parkedView()
		v.pv.Annotations[api.AnnotationMoveRecord], v.pv.Annotations[api.AnnotationMoveOffer] = record, offer
		v.pv.Annotations[api.AnnotationMoveAnswer], v.pv.Annotations[api.AnnotationHandedOver] = said, handed
		v.claim.Annotations[api.AnnotationSelectedNode] = own.To
		allowed, isTarget := target[state]
		if state != "" {
			v.rec = own
			v.local = &Local{Volume: lvm.Volume{Name: v.pv.Name, State: state, Class: lvm.Class{Layout: lvm.LayoutThin}}, Move: "m", Rounds: []Round{{Move: "m", Number: 1}}}
		}
		if !isTarget {
			allowed, v.node, v.offer = source[state], own.From, &Offer{Move: "m", Text: []byte("{}")}
			v.members = []*member{{name: own.Claim, local: v.local, pv: v.pv, bound: true, rec: own}}
		}
		if used {
			v.users = []podUse{{name: "db-0", node: own.From}}
		}
		s, a := decide(v, Grace), answered(v.pv)
		switch {
		case !slices.Contains(allowed, s.do):
			t.Errorf("%q in the state %q", s.do, state)
		case s.do == handOver && a.Received != "m", s.do == deleteVolume && a.Confirmed != "m", s.do == hold && used:
			t.Errorf("%q after the answer %+v", s.do, a)
		case s.do == confirm && handed != "m", s.do == discard && state == stateReceived && handed == "m":
			t.Errorf("%q of a copy that was handed over for %q", s.do, handed)
		case len(s.why) > 4096 || len(s.of) > maxHold:
			t.Errorf("it says %d bytes, and waits for a copy with a name of %d", len(s.why), len(s.of))
		}
		if v.local == nil && s.do != wait && (parseRecord(record).Handle != own.Handle || parseRecord(record).UID != own.UID || v.pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain) {
			t.Errorf("%q for the record %s", s.do, record)
		}
	})
}
