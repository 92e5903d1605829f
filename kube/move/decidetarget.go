package move

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

// The target's decisions. It believes the record in the source's PersistentVolume only if that is bound to a claim which names this node, and equals what the
// record rebuilds.

// incoming reads the record of a parked PersistentVolume whose claim shall come to this node; nil: it is not that.
func (v *view) incoming() *Record {
	if v.pv == nil || v.claim == nil || wants(v.claim) != v.node || v.pv.Annotations[api.AnnotationMovingTo] != v.node || v.pv.DeletionTimestamp != nil {
		return nil
	}
	r := parseRecord(v.pv.Annotations[api.AnnotationMoveRecord])
	if r == nil || r.To != v.node || r.From == v.node || r.Confirmed != "" || r.UID != v.claim.UID || r.key() != kubeclient.KeyOf(v.claim) || r.name() != v.pv.Name ||
		!isBound(v.claim, v.pv) || shapeOf(v.pv, r.From, r.Handle) != parked {
		return nil
	}
	if kubeclient.Placed(v.pv, r.From) != nil || r.rebuildsParked(v.pv) != nil {
		return nil
	}
	return r
}

// beginReceiving is the target's first step.
func (v *view) beginReceiving() step {
	if v.claim == nil || wants(v.claim) != v.node || v.incoming() == nil {
		return waiting("", "")
	}
	if _, ok := offered(v.pv); !ok {
		return waiting("", "")
	}
	return v.receiveOrAnswer()
}

// receiving is the target's step while its copy is incomplete. An incomplete copy is never the user's volume.
func (v *view) receiving() step {
	if v.pv == nil && v.claim != nil {
		return waiting(api.MoveCopying, "waits for the PersistentVolume")
	}
	r := v.incoming()
	if r == nil {
		return v.unwanted()
	}
	if v.rec == nil || v.rec.text() != r.text() {
		return step{do: note, phase: api.MoveCopying}
	}
	if _, ok := offered(v.pv); !ok {
		return waiting(api.MoveCopying, "waits for the offer")
	}
	return v.receiveOrAnswer()
}

// receiveOrAnswer publishes this process's key and the progress; else the copy continues.
func (v *view) receiveOrAnswer() step {
	o, _ := offered(v.pv)
	if v.pv.Annotations[api.AnnotationMoveAnswer] != v.answer().text() {
		return step{do: answer, phase: api.MoveCopying, of: o.Move}
	}
	return step{do: receive, phase: api.MoveCopying, of: o.Move}
}

// unwanted discards a copy that is not the user's volume, if that is sure: the PersistentVolume is the source's and does not offer this hold to
// this node, so the source did not hand it over. Without a PersistentVolume the claim must be gone, too.
func (v *view) unwanted() step {
	if v.pv == nil && v.claim == nil {
		return step{do: discard, phase: api.MoveCancelled}
	}
	if v.pv == nil || v.pv.DeletionTimestamp != nil || v.pv.Spec.CSI == nil || v.pv.Spec.CSI.VolumeHandle == v.local.ID.String() {
		return waiting(api.MoveCopying, "waits for the PersistentVolume")
	}
	if v.local.State == stateReceived && v.pv.Annotations[api.AnnotationMovingTo] == v.node {
		return waiting(api.MoveCopying, "waits for the source") // the claim may change its mind; the source decides
	}
	return step{do: discard, phase: api.MoveCancelled}
}

// received is the target's step with a complete copy.
func (v *view) received() step {
	if v.rec != nil && v.rec.Confirmed != "" {
		return step{do: finish, phase: api.MoveSwitching}
	}
	if r := v.incoming(); r != nil && (v.rec == nil || v.rec.text() != r.text()) {
		return step{do: note, phase: api.MoveCopying}
	}
	if v.pv == nil || v.rec == nil || v.pv.Annotations[api.AnnotationMovingTo] != v.node || v.pv.Spec.CSI == nil || v.pv.Spec.CSI.VolumeHandle != v.rec.Handle {
		return v.unwanted()
	}
	if v.pv.Annotations[api.AnnotationHandedOver] == v.local.Move && pending.IsOn(v.pv, v.rec.From) { // only that node can write it there
		return step{do: confirm, phase: api.MoveSwitching}
	}
	if v.incoming() == nil {
		return waiting(api.MoveCopying, "waits for the source")
	}
	if o, ok := offered(v.pv); ok && o.Move != v.local.Move {
		return step{do: discard, phase: api.MoveCopying} // held again, or copied ahead: this copy is worthless
	}
	if v.pv.Annotations[api.AnnotationMoveAnswer] != v.answer().text() {
		return step{do: answer, phase: api.MoveCopying}
	}
	return waiting(api.MoveCopying, "is copied; waits for the source")
}

// answer is what this node says of the offer.
func (v *view) answer() Answer {
	a := Answer{Key: v.key, Done: rounded(v.progress), Total: v.progress.Total}
	switch {
	case v.refused != nil:
		a.Problem = cut(v.refused.Error())
	case v.progress.Problem != nil:
		a.Problem, a.Queued = cut(v.progress.Problem.Error()), v.progress.Queued
	}
	if v.local != nil && v.local.State == stateReceiving && v.local.Base != "" && v.local.Base == v.local.Move {
		a.Round, a.Done, a.Total = v.local.Base, 0, 0
		if v.progress.Move == a.Round {
			a.Sent = v.progress.Total
		}
	}
	if v.local != nil && v.local.State == stateReceived {
		a = Answer{Key: v.key, Received: v.local.Move}
	}
	if v.rec != nil && v.rec.Confirmed != "" {
		a = Answer{Key: v.key, Received: v.rec.Confirmed, Confirmed: v.rec.Confirmed}
	}
	return a
}

// rounded is the progress in steps: each is a request to the API server.
func rounded(p Progress) lvm.Bytes {
	if step := p.Total / 32; step > 0 {
		return p.Done - p.Done%step
	}
	return p.Done
}

// cut bounds a text for an annotation.
func cut(text string) string {
	const most = 512
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// finished is the target's step when its volume is the user's, until the objects say so.
func (v *view) finished() step {
	const phase = api.MoveSwitching
	if v.rec.Confirmed == "" {
		return blocked(phase, fmt.Sprintf("logical volume %s is ready, but its tags do not say that node %s handed it over", v.local.ID, v.rec.From))
	}
	switch {
	case v.pv == nil:
		return step{do: createTarget, phase: phase}
	case v.pv.Spec.CSI != nil && v.pv.Spec.CSI.VolumeHandle == v.rec.Handle:
		return v.takeOver()
	case v.pv.Spec.CSI == nil || v.pv.Spec.CSI.VolumeHandle != v.local.ID.String() || v.pv.DeletionTimestamp != nil:
		return blocked(phase, fmt.Sprintf("PersistentVolume %s is not that of logical volume %s on node %s, which has the data since the move from node %s: correct it, or delete it, and this node creates it again",
			v.pv.Name, v.local.ID, v.node, v.rec.From))
	case v.claim != nil && v.claim.Spec.VolumeName == v.pv.Name && !isBound(v.claim, v.pv):
		return step{do: poke, phase: phase}
	case v.claim != nil && v.rec.AttributesClass != "" && ptr.Deref(v.claim.Spec.VolumeAttributesClassName, "") == v.rec.AttributesClass && ptr.Deref(v.claim.Status.CurrentVolumeAttributesClassName, "") == "":
		return step{do: restoreClass, phase: phase}
	case isMarked(v.pv):
		return step{do: restore, phase: phase}
	}
	return step{do: forget, phase: api.MoveMoved, why: fmt.Sprintf("the volume is on node %s now; node %s keeps its former copy until a pod has used the volume here for some time, or the claim's annotation %s names that node", v.node, v.rec.From, api.AnnotationMoveFinish)}
}

// takeOver tells the source, whose PersistentVolume still exists, that this node has the volume.
func (v *view) takeOver() step {
	if v.pv.Annotations[api.AnnotationMovingTo] == v.node && answered(v.pv).Confirmed != v.rec.Confirmed {
		return step{do: answer, phase: api.MoveSwitching}
	}
	return waiting(api.MoveSwitching, fmt.Sprintf("waits until node %s deletes PersistentVolume %s", v.rec.From, v.pv.Name))
}

// rebuildsParked compares the record with the parked PersistentVolume.
func (r *Record) rebuildsParked(pv *corev1.PersistentVolume) error {
	plainAgain := pv.DeepCopy()
	term := &plainAgain.Spec.NodeAffinity.Required.NodeSelectorTerms[0]
	if len(term.MatchExpressions) > 1 {
		term.MatchExpressions = term.MatchExpressions[:1]
	}
	return r.rebuilds(plainAgain)
}
