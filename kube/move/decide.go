package move

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

// decide returns the next step of this node for a claim. It is a pure function.
func decide(v *view, grace time.Duration) step {
	switch {
	case v.local == nil:
		return v.beginReceiving()
	case v.rec != nil && v.rec.From != v.node && v.rec.To != v.node:
		return blocked(api.MoveWaiting, fmt.Sprintf("logical volume %s moves from node %s to node %s, and its node is called %s now: give it its name again", v.local.ID, v.rec.From, v.rec.To, v.node))
	case v.local.State == stateReceiving:
		return v.receiving()
	case v.local.State == stateReceived:
		return v.received()
	case v.local.State == stateMoved:
		return v.moved(grace)
	case v.rec != nil && v.rec.To == v.node:
		return v.finished()
	case v.local.State == stateMoving || v.rec != nil:
		return v.leaving()
	case v.local.State == lvm.StateReady && wants(v.claim) != "" && wants(v.claim) != v.node:
		return v.begin()
	}
	return waiting("", "")
}

// begin is the source's first step: nothing is noted yet.
func (v *view) begin() step {
	if v.refused != nil {
		return blocked(api.MoveWaiting, v.refused.Error())
	}
	if v.fresh == nil {
		return waiting("", "") // the claim's volume is not on this node
	}
	return step{do: note, phase: api.MovePreparing}
}

// leaving is the source's step while its volume is the user's.
func (v *view) leaving() step {
	if v.rec == nil {
		return blocked(api.MoveWaiting, fmt.Sprintf("logical volume %s is held for a move, but its tags do not say which. Compare them with lvs -o lv_tags", v.local.ID))
	}
	switched := slices.ContainsFunc(v.members, func(m *member) bool { return m.local != nil && m.local.State == stateMoved })
	if !switched && slices.ContainsFunc(v.members, func(m *member) bool { return m.cancelled }) {
		return v.goBack()
	}
	switch shapeOf(v.pv, v.rec.From, v.rec.Handle) {
	case absent:
		return step{do: createParked, phase: api.MovePreparing}
	case plain:
		return v.park()
	case foreign:
		return v.foreignVolume()
	case parked:
	}
	if v.pv.DeletionTimestamp != nil { // deleted by another client: the next step creates it again
		return step{do: dropFinalizers, phase: api.MovePreparing}
	}
	if v.claim != nil && !isBound(v.claim, v.pv) {
		return step{do: poke, phase: api.MovePreparing}
	}
	return v.copying()
}

// park replaces the PersistentVolume by one that holds back pods.
func (v *view) park() step {
	missing := v.without(func(m *member) bool { return m.rec != nil })
	switch {
	case v.pv.DeletionTimestamp == nil && !isMarked(v.pv) && !v.rec.describes(v.pv):
		return step{do: forget, phase: api.MovePreparing, why: "begins again: another client has changed PersistentVolume " + v.pv.Name}
	case missing != "" && v.pv.DeletionTimestamp == nil:
		return waiting(api.MovePreparing, "waits until the move of "+missing+" begins")
	case !v.annotated():
		return step{do: annotate, phase: api.MovePreparing}
	case v.pv.DeletionTimestamp == nil:
		return step{do: deleteVolume, phase: api.MovePreparing}
	}
	return step{do: dropFinalizers, phase: api.MovePreparing}
}

// annotated reports whether the PersistentVolume has the record and is retained, so that its deletion cannot delete the volume.
func (v *view) annotated() bool {
	return v.pv.Annotations[api.AnnotationMoveRecord] == v.rec.text() && v.pv.Annotations[api.AnnotationMovingTo] == v.rec.To &&
		v.pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain
}

// copying goes from the parked PersistentVolume to the switch.
func (v *view) copying() step {
	if missing := v.without(func(m *member) bool {
		return m.local != nil && m.local.State == stateMoved || m.shape() == parked && (m.bound || m.cancelled)
	}); missing != "" {
		return waiting(api.MovePreparing, "waits until the PersistentVolume of "+missing+" is parked")
	}
	if v.local.State == lvm.StateReady {
		return v.stop()
	}
	if v.offer == nil {
		return waiting(api.MoveCopying, fmt.Sprintf("logical volume %s is not offered yet: %v", v.local.ID, v.held))
	}
	if o, ok := offered(v.pv); !ok || o.Move != v.offer.Move || string(o.Text) != string(v.offer.Text) {
		return step{do: publishOffer, phase: api.MoveCopying}
	}
	missing := v.without(func(m *member) bool {
		return m.local != nil && (m.local.State == stateMoved || m.local.State == stateMoving && m.pv != nil && answered(m.pv).Received == m.local.Move)
	})
	if missing == "" {
		return step{do: handOver, phase: api.MoveSwitching}
	}
	a := answered(v.pv)
	switch {
	case a.Problem != "":
		return a.problem(api.MoveCopying)
	case a == (Answer{}):
		return waiting(api.MoveCopying, "waits for node "+v.rec.To+", which has not answered yet")
	case a.Received == v.local.Move:
		return waiting(api.MoveCopying, "is copied; waits for "+missing)
	}
	return waiting(api.MoveCopying, a.share(v.rec.To))
}

// stop waits until no pod uses the volume, and holds it. Until then the volume is copied ahead.
func (v *view) stop() step {
	if v.useless != nil {
		return step{do: dropRounds, phase: api.MoveStopping}
	}
	p := v.user()
	if p == nil {
		return v.afterPods()
	}
	if s := v.copyAhead(); s.do != wait {
		return s
	}
	return v.waitForPod(*p)
}

// user is a pod that uses the volume on this node; nil: none does.
func (v *view) user() *podUse {
	i := slices.IndexFunc(v.users, func(p podUse) bool { return p.node == v.node && !p.ended })
	if i < 0 {
		return nil
	}
	return &v.users[i]
}

// goBack undoes what the source did: the move is cancelled.
func (v *view) goBack() step {
	const phase = api.MoveCancelled
	switch shapeOf(v.pv, v.rec.From, v.rec.Handle) {
	case absent:
		return step{do: createSource, phase: phase}
	case foreign:
		return v.foreignVolume()
	case parked:
		if v.pv.DeletionTimestamp == nil {
			return step{do: deleteVolume, phase: phase}
		}
		return step{do: dropFinalizers, phase: phase}
	case plain:
	}
	switch {
	case v.pv.DeletionTimestamp != nil && isMarked(v.pv):
		return step{do: dropFinalizers, phase: phase} // the next one has no deletion
	case v.local.State == stateMoving:
		return step{do: cancel, phase: phase}
	case v.claim != nil && !isBound(v.claim, v.pv) && v.claim.Spec.VolumeName == v.pv.Name:
		return step{do: poke, phase: phase}
	case isMarked(v.pv):
		return step{do: restore, phase: phase}
	}
	return step{do: forget, phase: phase, why: "the move to node " + v.rec.To + " is cancelled; the volume stays on node " + v.node}
}

// moved is the source's step after the switch: only forward.
func (v *view) moved(grace time.Duration) step {
	const phase = api.MoveSwitching
	if v.rec == nil {
		return waiting(phase, fmt.Sprintf("logical volume %s was handed over, but its tags do not say to which node", v.local.ID))
	}
	selected := v.claim != nil && v.claim.Annotations[api.AnnotationSelectedNode] == v.node // if so, the source's PersistentVolume was not deleted by this node
	switch shapeOf(v.pv, v.rec.From, v.rec.Handle) {
	case absent:
		if selected {
			return step{do: createParked, phase: phase}
		}
		return waiting(phase, "waits until node "+v.rec.To+" creates the PersistentVolume")
	case foreign:
		if selected && isBound(v.claim, v.pv) && pending.IsOn(v.pv, v.rec.To) {
			return step{do: selectNode, phase: phase}
		}
		return v.formerCopy(grace)
	case plain, parked:
	}
	switch a := answered(v.pv); {
	case v.pv.Annotations[api.AnnotationHandedOver] != v.local.Move:
		return step{do: announce, phase: phase}
	case a.Confirmed != v.local.Move:
		return waiting(phase, "waits until node "+v.rec.To+" takes the volume over")
	case v.claim != nil && (v.claim.Annotations[api.AnnotationSelectedNode] != v.rec.To || v.claim.Annotations[api.AnnotationMoveFinish] != ""):
		return step{do: selectNode, phase: phase}
	case v.pv.DeletionTimestamp == nil:
		return step{do: deleteVolume, phase: phase}
	}
	return step{do: dropFinalizers, phase: phase}
}

// formerCopy decides when the source's volume, which is no longer the user's, may go. The proof that the user has the volume elsewhere is the
// PersistentVolume of the target.
func (v *view) formerCopy(grace time.Duration) step {
	pv := v.pv
	if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != api.DriverName || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != v.rec.UID ||
		pv.Spec.CSI.VolumeHandle == v.rec.Handle || pv.DeletionTimestamp != nil {
		return waiting("", "")
	}
	if v.claim == nil || !isBound(v.claim, pv) || v.unmoved {
		return waiting("", "")
	}
	if v.claim.Annotations[api.AnnotationMoveFinish] == v.node {
		return step{do: remove, phase: api.MoveMoved}
	}
	if v.isUsedFor(grace) {
		return step{do: remove, phase: api.MoveMoved}
	}
	if wants(v.claim) != v.node {
		return waiting("", "")
	}
	v.refused = fmt.Errorf("node %s still has the copy from which this volume moved away: set the claim's annotation %s=%s to delete it", v.node, api.AnnotationMoveFinish, v.node)
	if v.incoming() != nil && v.pv.Annotations[api.AnnotationMoveAnswer] != v.answer().text() {
		return step{do: answer, phase: api.MoveWaiting}
	}
	return blocked(api.MoveWaiting, v.refused.Error())
}

// isUsedFor reports whether a pod has used the volume for a time. On another node than the volume's it proves nothing. The pod may have waited for the
// PersistentVolume, and p.since is by the clock of its node.
func (v *view) isUsedFor(grace time.Duration) bool {
	return v.now.Sub(v.pv.CreationTimestamp.Time) >= grace && slices.ContainsFunc(v.users, func(p podUse) bool {
		return p.node == pending.NodeOf(v.pv) && !p.since.IsZero() && v.now.Sub(p.since) >= grace
	})
}

// foreignVolume is the step for a PersistentVolume that is not the source's although its volume is the user's.
func (v *view) foreignVolume() step {
	return blocked(api.MovePreparing, fmt.Sprintf("PersistentVolume %s is not that of logical volume %s on node %s, which has the data: another client changed it. Correct it, or delete it, and this node creates it again",
		v.pv.Name, v.local.ID, v.node))
}

// without names the members of the move that lack something, in the order of their names; "": none.
func (v *view) without(has func(*member) bool) string {
	var names []string
	for _, m := range v.members {
		if !has(m) {
			names = append(names, "claim "+kubeclient.Quoted(m.name))
		}
	}
	return strings.Join(names, " and ")
}

// isMarked reports whether a PersistentVolume has annotations of a move.
func isMarked(pv *corev1.PersistentVolume) bool {
	return slices.ContainsFunc(ourAnnotations, func(k string) bool { _, has := pv.Annotations[k]; return has })
}
