package move

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/pending"
)

// view is what one agent knows of one claim's move when it decides. All of it was read a moment ago.
type view struct {
	node string
	now  time.Time

	claim *corev1.PersistentVolumeClaim // nil: none of that name, or another UID than the record's
	pv    *corev1.PersistentVolume      // of the claim or of the record; nil: none
	local *Local                        // this node's volume of that name; nil: none
	rec   *Record                       // local's; nil: none

	users []podUse // the pods that use the claim

	// On the source.
	offer   *Offer    // of a held volume, or of the newest round of a ready one; nil: none.
	useless error     // why the rounds of a ready volume are of no use; nil: they are.
	alone   error     // why no round can be taken; nil: one can.
	held    error     // Why Hold refused; nil: it did not.
	members []*member // Of the move, this claim included.
	unmoved bool      // Of a moved volume: another claim of its move is not moved yet, and this volume is the record of the switch.
	refused error     // of a claim without a record: why the move cannot begin
	fresh   *Record   // of a claim without a record: what the record will be; nil: refused

	// On the target.
	key      string   // of this process
	progress Progress // of the last Receive
}

// member is one claim of a move, as the source sees it.
type member struct {
	name      string // of the claim
	local     *Local
	pv        *corev1.PersistentVolume
	bound     bool // the claim is bound to pv
	cancelled bool
	rec       *Record
}

// podUse is a pod that uses the claim.
type podUse struct {
	name    string
	node    string    // "": none yet
	ended   bool      // Succeeded or Failed
	deleted bool      // its deletion has begun
	stopped bool      // it has run, and has to mount its volumes again
	since   time.Time // when its containers were first running; zero: they are not
}

// shape is what a PersistentVolume is for a move of a record's volume.
type shape int

const (
	absent  shape = iota
	plain         // on the source, as it was before and is after a cancelled move
	parked        // on the source: no pod can be placed
	foreign       // not the source's volume: the target's, or something unknown
)

func shapeOf(pv *corev1.PersistentVolume, from, handle string) shape {
	if pv == nil {
		return absent
	}
	if !pending.IsOn(pv, from) || pv.Spec.CSI.VolumeHandle != handle {
		return foreign
	}
	if isParked(pv) {
		return parked
	}
	return plain
}

func isParked(pv *corev1.PersistentVolume) bool {
	return slices.ContainsFunc(pv.Spec.NodeAffinity.Required.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
		return slices.ContainsFunc(term.MatchExpressions, func(e corev1.NodeSelectorRequirement) bool { return e.Key == api.ParkedKey })
	})
}

func (m *member) shape() shape {
	if m.rec == nil {
		return foreign
	}
	return shapeOf(m.pv, m.rec.From, m.rec.Handle)
}

// isBound reports whether a claim is bound to a PersistentVolume, in both directions.
func isBound(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) bool {
	return claim != nil && pv != nil && claim.Status.Phase == corev1.ClaimBound && claim.Spec.VolumeName == pv.Name && names(pv, claim) && pv.Status.Phase == corev1.VolumeBound
}

// names reports whether a PersistentVolume names a claim.
func names(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	ref := pv.Spec.ClaimRef
	return ref != nil && ref.UID == claim.UID && ref.Namespace == claim.Namespace && ref.Name == claim.Name
}

// wants returns the node that a claim's user wants its volume on; "": none.
func wants(claim *corev1.PersistentVolumeClaim) string {
	if claim == nil || claim.DeletionTimestamp != nil {
		return ""
	}
	return claim.Annotations[api.AnnotationMoveTo]
}
